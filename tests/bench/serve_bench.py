"""What `mdl serve` gives under load on loopback: throughput beside nginx serving the flat file, memory under its flag,
the time of one tensor of a large model, and the first byte on a long history.

wrk asks with 64 connections and throws the bytes away; curl fetches each revision, and its SHA-256 is compared with the
file that was committed. nginx, wrk and curl come from the system's packages.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import BENCH, median, parser, prose, publish, table
from support import models
from support.cli import Mdl
from support.server import Server
from support.tensors import Tensor, header_bytes, write_safetensors

MIB = 1 << 20
CONNECTIONS = 64
REVISIONS = 20
NGINX = """
worker_processes auto; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; location / {{ root {root}; }} }}
}}
"""


def drifted(tensors: list[Tensor], step: int) -> list[Tensor]:
    """The model after some training: every f32 moved a little, so that each version is a delta of the one before."""
    rng = np.random.default_rng(step)
    out = []
    for t in tensors:
        if t.dtype != "F32":
            out.append(t)
            continue
        noise = rng.standard_normal(t.array().shape, np.float32)
        out.append(Tensor.of(t.name, (t.array() + noise * np.float32(1e-5)).astype(np.float32)))
    return out


def history(root: Path, flat: Path) -> dict[str, str]:
    """A repository with REVISIONS versions of MiniLM; returns the SHA-256 of each, by revision."""
    mdl = Mdl.init(root / "bench" / "minilm", "--bare")
    tensors, digests = models.minilm_tensors(), {}
    for step in range(REVISIONS):
        folder = flat / f"step-{step}"
        write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
        mdl.commit(folder, f"step {step}", "--step", str(step))
        digests[f"step-{step}"] = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        tensors = drifted(tensors, step)
    return digests


def wrk(url: str, seconds: int, script: str | None = None) -> dict[str, float]:
    """Bytes a second and errors of 64 connections."""
    argv = ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "60s"]
    if script:
        argv += ["-s", script]
    text = subprocess.run([*argv, url], capture_output=True, text=True, check=True).stdout
    # wrk counts "Transfer/sec" only over whole responses.
    rate = re.search(r"Transfer/sec:\s+([\d.]+)(\w+)", text)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    assert rate, text
    unit = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[rate[2]]
    failed = sum(map(int, errors.groups())) if errors else 0
    return {"bytes_per_second": float(rate[1]) * unit, "errors": failed + (int(bad[1]) if bad else 0)}


class Watch(threading.Thread):
    """The largest resident set of a process while this runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.status, self.peak, self.ended = Path(f"/proc/{pid}/status"), 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            anonymous = re.search(r"RssAnon:\s+(\d+)", self.status.read_text())
            self.peak = max(self.peak, int(anonymous[1]) << 10 if anonymous else 0)

    def stop(self) -> int:
        self.ended.set()
        self.join()
        return self.peak


def resolve(revision: str) -> str:
    return f"/bench/minilm/resolve/{revision}/model.safetensors"


def fetched(url: str) -> tuple[str, float]:
    """SHA-256 of what curl gets, and the seconds it took."""
    began = time.perf_counter()
    curl = subprocess.Popen(["curl", "-sSf", url], stdout=subprocess.PIPE)
    assert curl.stdout is not None
    digest = hashlib.file_digest(curl.stdout, "sha256").hexdigest()
    assert curl.wait() == 0, url
    return digest, time.perf_counter() - began


def cold_and_memory(root: Path, digests: dict[str, str], memory: str) -> dict[str, Any]:
    """64 downloaders of 20 revisions that nobody has asked for before."""
    with Server(root, ("--memory", memory), {"MDL_LOG": "warn"}) as server:
        shutil.rmtree(root / ".mdl-serve" / "decoded", ignore_errors=True)
        server.stop()
        server.start()
        watch = Watch(server.pid)
        watch.start()
        began = time.perf_counter()
        revisions = [list(digests)[i % REVISIONS] for i in range(CONNECTIONS)]
        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            got = list(pool.map(lambda r: fetched(server.url + resolve(r))[0], revisions))
        seconds = time.perf_counter() - began
        wrong = sum(g != digests[r] for g, r in zip(got, revisions, strict=True))
        peak = watch.stop()
    return {"memory": memory, "seconds": seconds, "wrong": wrong, "downloads": CONNECTIONS, "peak_rss": peak}


def throughput(root: Path, flat: Path, folder: Path, seconds: int, rounds: int) -> dict[str, Any]:
    """nginx and mdl in turn: one cached revision, and 20 of them."""
    port = 18080
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, root=flat, port=port))
    one, many = {"nginx": [], "mdl": []}, {"nginx": [], "mdl": []}
    script = folder / "many.lua"
    errors = 0
    with Server(root, environment={"MDL_LOG": "warn"}) as server:
        nginx = subprocess.Popen(["nginx", "-c", str(config)])
        try:
            time.sleep(0.5)
            for revision in range(REVISIONS):
                fetched(server.url + resolve(f"step-{revision}"))
                fetched(f"http://127.0.0.1:{port}/step-{revision}/model.safetensors")
            for _ in range(rounds):
                last = f"step-{REVISIONS - 1}"
                urls = {
                    "nginx": (f"http://127.0.0.1:{port}", f"/{last}/model.safetensors", "/step-%d/model.safetensors")
                }
                urls["mdl"] = (server.url, resolve(last), resolve("step-%d"))
                for name, (base, path, pattern) in urls.items():
                    done = wrk(base + path, seconds)
                    one[name].append(done["bytes_per_second"])
                    errors += done["errors"]
                    lua = f"local n = 0\nrequest = function()\n  n = (n + 1) % {REVISIONS}\n"
                    script.write_text(lua + f'  return wrk.format("GET", string.format("{pattern}", n))\nend\n')
                    done = wrk(base, seconds, str(script))
                    many[name].append(done["bytes_per_second"])
                    errors += done["errors"]
        finally:
            nginx.terminate()
            nginx.wait()
    return {"one": one, "many": many, "errors": errors}


def large(root: Path, folder: Path, gib: float) -> dict[str, Any]:
    """One tensor of a large model by ranges, from a server that was just started and has decoded nothing."""
    rows, columns = 1024, 1024
    count = max(1, int(gib * (1 << 30)) // (rows * columns * 2))
    rng = np.random.default_rng(7)
    path = folder / "large" / "model.safetensors"
    path.parent.mkdir()
    size = rows * columns * 2
    header = {
        f"layers.{i}.weight": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [i * size, (i + 1) * size]}
        for i in range(count)
    }
    head = header_bytes(header)
    with path.open("wb") as file:
        file.write(head)
        for _ in range(count):
            values = rng.standard_normal((rows, columns), np.float32) * np.float32(0.02)
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    mdl = Mdl.init(root / "bench" / "large", "--bare")
    mdl.commit(path.parent, "large")
    times, apis = [], []
    for i in np.linspace(0, count - 1, 15).astype(int):
        shutil.rmtree(root / ".mdl-serve" / "decoded", ignore_errors=True)
        start = len(head) + int(i) * size
        with path.open("rb") as file:
            file.seek(start)
            wanted = file.read(size)
        with Server(root, environment={"MDL_LOG": "warn"}) as server:
            began = time.perf_counter()
            answer = server.get(
                "/bench/large/resolve/main/model.safetensors", Range=f"bytes={start}-{start + size - 1}"
            )
            times.append(time.perf_counter() - began)
            assert (answer.status, answer.body == wanted) == (206, True)
        with Server(root, environment={"MDL_LOG": "warn"}) as server:
            began = time.perf_counter()
            tensor = "/api/v1/repos/bench/large/tensor/main/model.safetensors"
            answer = server.get(f"{tensor}?name=layers.{i}.weight&format=raw")
            apis.append(time.perf_counter() - began)
            assert (answer.status, answer.body == wanted) == (200, True)
    return {"bytes": path.stat().st_size, "tensor_bytes": size, "range_seconds": times, "tensor_seconds": apis}


def long_history(repo: Path) -> dict[str, Any]:
    """Start to first byte, then the log and refs, on a repository of many commits at ROOT/OWNER/NAME."""
    root, name = repo.parents[1], f"{repo.parent.name}/{repo.name}"
    out: dict[str, list[float]] = {}
    paths = {
        "first byte": "/healthz",
        "log": f"/api/v1/repos/{name}/log?limit=50",
        "refs": f"/api/v1/repos/{name}/refs",
        "log page": f"/{name}/commits/main",
        "overview page": f"/{name}",
    }
    for _ in range(5):
        for what, path in paths.items():
            began = time.perf_counter()
            with Server(root, environment={"MDL_LOG": "warn"}) as server:
                up = time.perf_counter()
                answer = server.get(path)
                seconds = time.perf_counter() - (began if what == "first byte" else up)
                assert answer.status == 200, (what, answer.status, answer.body[:300])
                out.setdefault(what, []).append(seconds)
    return out


def rate(values: list[float]) -> str:
    return f"{median(values) / 1e9:.2f} ({min(values) / 1e9:.2f} to {max(values) / 1e9:.2f})"


def milliseconds(values: list[float]) -> str:
    return f"{median(values) * 1e3:.1f} ({min(values) * 1e3:.1f} to {max(values) * 1e3:.1f})"


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--seconds", type=int, default=8, help="of each round of wrk")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--gib", type=float, default=2.0, help="size of the large model")
    options.add_argument("--history", type=Path, help="a repository of many commits, as ROOT/OWNER/NAME")
    args = options.parse_args()
    BENCH.mkdir(parents=True, exist_ok=True)
    data: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=BENCH) as temporary:
        folder = Path(temporary)
        # nginx's workers are another user's.
        folder.chmod(0o755)
        root, flat = folder / "root", folder / "flat"
        root.mkdir()
        digests = history(root, flat)
        data["cold"] = [cold_and_memory(root, digests, memory) for memory in ("256MiB", "1GiB")]
        data["throughput"] = throughput(root, flat, folder, args.seconds, args.rounds)
        data["large"] = large(root, folder, args.gib)
        if args.history:
            data["history"] = long_history(args.history)
    publish("serve", "mdl serve under load", report(data, args), data, args.out)
    print(json.dumps({k: v for k, v in data.items() if k != "throughput"}, indent=1))
    return 0


def report(data: dict[str, Any], args: Any) -> str:
    load = data["throughput"]
    rows = []
    for what, key in (("one cached revision", "one"), (f"{REVISIONS} cached revisions", "many")):
        ratio = median(load[key]["mdl"]) / median(load[key]["nginx"])
        rows.append((what, rate(load[key]["nginx"]), rate(load[key]["mdl"]), f"{ratio:.2f}"))
    text = prose(
        f"64 connections (wrk, {args.rounds} rounds of {args.seconds} s each in turn) of a 90 MB file, in GB/s: median",
        f"and range. Errors: {load['errors']}. mdl answers at `/resolve/`, from its cache of decoded "
        f"files; nginx serves",
        "the flat files.",
    )
    text += "\n" + table(("", "nginx", "mdl serve", "ratio"), rows)
    text += prose(
        f"Downloads that nobody asked for before: 64 at once over {REVISIONS} revisions, each a delta of "
        f"the one before."
    )
    cold = data["cold"]
    text += "\n" + table(
        ("--memory", "seconds", "wrong", "peak memory (anonymous, MiB)"),
        [(c["memory"], f"{c['seconds']:.1f}", c["wrong"], f"{c['peak_rss'] / MIB:.0f}") for c in cold],
    )
    big = data["large"]
    text += prose(
        f"One tensor ({big['tensor_bytes'] / MIB:.0f} MiB) of a model of {big['bytes'] / (1 << 30):.1f} "
        f"GiB, asked of a server that",
        "was just started and has decoded nothing, in milliseconds:",
        f"as a range of the file {milliseconds(big['range_seconds'])}, by name {milliseconds(big['tensor_seconds'])}.",
    )
    if "history" in data:
        text += prose(
            "A repository of 10,000 commits, a server just started, in milliseconds (first byte: from the "
            "start of the process):"
        )
        text += "\n" + table(("", "ms"), [(k, milliseconds(v)) for k, v in data["history"].items()])
    return text


if __name__ == "__main__":
    raise SystemExit(main())
