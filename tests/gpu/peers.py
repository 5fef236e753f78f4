"""Times other libraries on the same GPU for the same work, a line of JSON each; what is not installed says so.

Peers: CuPy's quantile for the thresholds, k-means in torch for the codebook, torch's bucketize for the quantise pass,
torch.save to memory for the commit, nvCOMP's ANS for the lossless coder. Times are medians on the clock, the device
waited for.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUMBERS = 1 << 28
PARAMETERS = 1_011_353_600
CLUSTERS = 32
ITERATIONS = 10
MEMORY = Path("/dev/shm")


def median(work: Callable[[], Any], wait: Callable[[], Any], runs: int) -> float:
    """Milliseconds."""
    times = []
    for _ in range(runs + 1):
        wait()
        began = time.perf_counter()
        work()
        wait()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[1:])


def result(ms: float, size: int, note: str, **more: Any) -> dict[str, Any]:
    return {"ms": ms, "gbps": size / ms / 1e6, "bytes": size, "note": note, **more}


def weights(n: int) -> Any:
    """Nine of ten from one normal distribution, the tenth from one twice as wide: as `gpu_bench` has them."""
    import torch

    made = torch.Generator(device="cuda").manual_seed(3)
    w = torch.randn(n, device="cuda", generator=made)
    wide = torch.rand(n, device="cuda", generator=made) < 0.1
    return w.mul_(0.03).where(~wide, 2 * w)


def cupy_quantile() -> dict[str, Any]:
    import cupy

    w = cupy.from_dlpack(weights(NUMBERS))
    q = cupy.array([0.1, 0.995])
    ms = median(lambda: cupy.quantile(cupy.abs(w), q), cupy.cuda.Device().synchronize, 5)
    note = "two thresholds of magnitude; mdl's histogram serves all of them"
    return result(ms, 4 * NUMBERS, note, beside="histogram of f32")


def torch_kmeans() -> dict[str, Any]:
    """Lloyd's algorithm for numbers: centres stay sorted, the nearest is found by bisection among their middles."""
    import torch

    w = weights(NUMBERS)

    def cluster() -> Any:
        centres = torch.linspace(-0.1, 0.1, CLUSTERS, device="cuda")
        for _ in range(ITERATIONS):
            of = torch.bucketize(w, (centres[1:] + centres[:-1]) / 2, out_int32=True)
            sums = torch.zeros(CLUSTERS, device="cuda", dtype=torch.float64)
            counts = torch.bincount(of, minlength=CLUSTERS)
            sums.index_add_(0, of, w.double())
            centres = torch.where(counts > 0, (sums / counts.clamp(min=1)).float(), centres)
        return centres

    ms = median(cluster, torch.cuda.synchronize, 3)
    note = f"{CLUSTERS} clusters, {ITERATIONS} rounds of Lloyd; mdl finds the optimum from its histogram, on the host"
    return result(ms, 4 * NUMBERS, note, beside="histogram of f32")


def torch_bucketize() -> dict[str, Any]:
    import torch

    w = weights(NUMBERS)
    centres = torch.linspace(-0.1, 0.1, CLUSTERS, device="cuda")
    middles = (centres[1:] + centres[:-1]) / 2
    ms = median(lambda: centres[torch.bucketize(w, middles, out_int32=True)], torch.cuda.synchronize, 10)
    return result(ms, 4 * NUMBERS, "the nearest of 32 centres, written back", beside="quantise pass over f32")


def torch_copy() -> dict[str, Any]:
    import torch

    w = weights(NUMBERS)
    to = torch.empty_like(w)
    ms = median(lambda: to.copy_(w), torch.cuda.synchronize, 20)
    return result(
        ms, 4 * NUMBERS, f"{8 * NUMBERS / ms / 1e6:,.0f} GB/s read and written", beside="copy inside the device"
    )


def torch_save() -> dict[str, Any]:
    import torch

    room = os.statvfs(MEMORY)
    wanted = 4 * PARAMETERS + (1 << 28)
    if room.f_bavail * room.f_frsize < wanted:
        raise RuntimeError(f"less than {wanted >> 20} MiB are free in memory for files")
    side = 2048 * 2048
    state = {f"layer{i}": weights(side) for i in range(PARAMETERS // side)}
    state["rest"] = weights(PARAMETERS % side or 1)
    path = MEMORY / f"mdl-peer-{os.getpid()}.pt"
    try:
        ms = median(lambda: torch.save(state, path), torch.cuda.synchronize, 3)
    finally:
        path.unlink(missing_ok=True)
    return result(
        ms,
        4 * PARAMETERS,
        "a state of as many parameters to a file in memory; mdl's commit is lossy, and without its file",
        beside="commit",
        ratio=1.0,
    )


def nvcomp_ans(what: str) -> dict[str, Any]:
    from nvidia import nvcomp  # noqa: I001
    import torch

    raw = weights(2 * NUMBERS).bfloat16().view(torch.uint8)
    codec = nvcomp.Codec(algorithm="ANS")
    source = nvcomp.as_array(raw)
    encoded = codec.encode(source)
    size = int(encoded.buffer_size)
    work = (lambda: codec.encode(source)) if what == "encode" else (lambda: codec.decode(encoded))
    ms = median(work, torch.cuda.synchronize, 10)
    return result(ms, raw.numel(), "bytes of bf16", beside=f"bf16, {what}", ratio=raw.numel() / size)


PEERS: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    ("torch copy", torch_copy),
    ("CuPy quantile", cupy_quantile),
    ("torch k-means", torch_kmeans),
    ("torch bucketize", torch_bucketize),
    ("torch.save", torch_save),
    ("nvCOMP ANS, encode", lambda: nvcomp_ans("encode")),
    ("nvCOMP ANS, decode", lambda: nvcomp_ans("decode")),
]


def release() -> None:
    """Gives the allocators' memory back, for the next peer."""
    for module, name in (("torch", "cuda.empty_cache"), ("cupy", "get_default_memory_pool")):
        try:
            found = __import__(module)
            for part in name.split("."):
                found = getattr(found, part)
            pool = found()
            if pool is not None:
                pool.free_all_blocks()
        except Exception:
            continue


def main() -> None:
    for name, peer in PEERS:
        try:
            line = {"name": name, **peer()}
        except Exception as why:
            line = {"name": name, "missing": f"{type(why).__name__}: {why}"}
        print(json.dumps(line), flush=True)
        release()


if __name__ == "__main__":
    main()
