"""What `mdl serve` gives under load on loopback: throughput beside nginx serving the flat file and beside another build
of mdl; memory under its flag, one tensor of a large model, the first byte on a long history.

wrk asks with 64 connections and throws the bytes away; curl fetches each revision, and its SHA-256 is compared with the
file that was committed. nginx, wrk and curl come from the system's packages.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
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


SMALL = {
    "log": "/api/v1/repos/bench/minilm/log?limit=5",
    "refs": "/api/v1/repos/bench/minilm/refs",
    "tree": "/api/models/bench/minilm/tree/main",
    "healthz": "/healthz",
}
"""Answers of some kilobytes at most."""


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
    """Bytes and requests a second, and errors, of 64 connections."""
    argv = ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "60s"]
    if script:
        argv += ["-s", script]
    text = subprocess.run([*argv, url], capture_output=True, text=True, check=True).stdout
    # wrk counts "Transfer/sec" only over whole responses.
    rate = re.search(r"Transfer/sec:\s+([\d.]+)(\w+)", text)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    requests = re.search(r"Requests/sec:\s+([\d.]+)", text)
    assert rate, text
    assert requests, text
    unit = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[rate[2]]
    failed = sum(map(int, errors.groups())) if errors else 0
    failed += int(bad[1]) if bad else 0
    return {"bytes_per_second": float(rate[1]) * unit, "requests_per_second": float(requests[1]), "errors": failed}


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


class Build(Server):
    """The server of a build of mdl; none named: of the one under test."""

    def __init__(self, root: Path, build: Path | None = None, *options: str) -> None:
        super().__init__(root, options, {"MDL_LOG": "warn"})
        self.build = build

    def start(self) -> Server:
        own = os.environ.get("MDL_BIN")
        if self.build:
            os.environ["MDL_BIN"] = str(self.build)
        try:
            return super().start()
        finally:
            os.environ.pop("MDL_BIN", None)
            if own:
                os.environ["MDL_BIN"] = own


def cold_and_memory(root: Path, digests: dict[str, str], memory: str, build: Path | None = None) -> dict[str, Any]:
    """64 downloaders of 20 revisions that no client has asked for before."""
    with Build(root, build, "--memory", memory) as server:
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
    name = "before" if build else "now"
    return {
        "build": name,
        "memory": memory,
        "seconds": seconds,
        "wrong": wrong,
        "downloads": CONNECTIONS,
        "peak_rss": peak,
    }


def throughput(root: Path, flat: Path, folder: Path, args: Any) -> dict[str, Any]:
    """nginx, mdl and another build of it in turn: one cached revision, 20 of them, and small answers."""
    port = 18080
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, root=flat, port=port))
    one: dict[str, list[float]] = {}
    many: dict[str, list[float]] = {}
    small: dict[str, dict[str, list[float]]] = {what: {} for what in SMALL}
    script = folder / "many.lua"
    last = f"step-{REVISIONS - 1}"
    errors = 0
    with contextlib.ExitStack() as stack:
        asked = {"nginx": (f"http://127.0.0.1:{port}", "/%s/model.safetensors")}
        for name, build in {"mdl": None, "before": args.before}.items():
            if name == "mdl" or build:
                served = shutil.copytree(root, folder / f"root-{name}", symlinks=True)
                asked[name] = (stack.enter_context(Build(served, build)).url, resolve("%s"))
        nginx = subprocess.Popen(["nginx", "-c", str(config)])
        stack.callback(nginx.wait)
        stack.callback(nginx.terminate)
        time.sleep(0.5)
        for base, pattern in asked.values():
            for revision in range(REVISIONS):
                fetched(base + pattern % f"step-{revision}")
        for turn in range(args.rounds):
            # None is always the one that comes right after another.
            for name, (base, pattern) in list(asked.items())[:: 1 if turn % 2 else -1]:
                lua = f"local n = 0\nrequest = function()\n  n = (n + 1) % {REVISIONS}\n"
                path = pattern % "step-%d"
                script.write_text(lua + f'  return wrk.format("GET", string.format("{path}", n))\nend\n')
                looks = [(one, wrk(base + pattern % last, args.seconds)), (many, wrk(base, args.seconds, str(script)))]
                for kept, done in looks:
                    kept.setdefault(name, []).append(done["bytes_per_second"])
                    errors += done["errors"]
            for what, path in SMALL.items():
                for name, (base, _) in list(asked.items())[1:][:: 1 if turn % 2 else -1]:
                    done = wrk(base + path, max(1, args.seconds // 2))
                    small[what].setdefault(name, []).append(done["requests_per_second"])
                    errors += done["errors"]
    return {"one": one, "many": many, "small": small, "errors": errors}


def builds(args: Any) -> list[Path | None]:
    """The build under test, and the one beside it."""
    return [None, args.before] if args.before else [None]


def large(root: Path, folder: Path, args: Any) -> dict[str, Any]:
    """One tensor of a large model by ranges, from a server that was just started and has decoded nothing."""
    rows, columns = 1024, 1024
    count = max(1, int(args.gib * (1 << 30)) // (rows * columns * 2))
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
    times: dict[str, list[float]] = {}
    apis: dict[str, list[float]] = {}
    for i in np.linspace(0, count - 1, 15).astype(int):
        shutil.rmtree(root / ".mdl-serve" / "decoded", ignore_errors=True)
        start = len(head) + int(i) * size
        with path.open("rb") as file:
            file.seek(start)
            wanted = file.read(size)
        for build in builds(args):
            name = "before" if build else "now"
            with Build(root, build) as server:
                began = time.perf_counter()
                answer = server.get(
                    "/bench/large/resolve/main/model.safetensors", Range=f"bytes={start}-{start + size - 1}"
                )
                times.setdefault(name, []).append(time.perf_counter() - began)
                assert (answer.status, answer.body == wanted) == (206, True)
            with Build(root, build) as server:
                began = time.perf_counter()
                tensor = "/api/v1/repos/bench/large/tensor/main/model.safetensors"
                answer = server.get(f"{tensor}?name=layers.{i}.weight&format=raw")
                apis.setdefault(name, []).append(time.perf_counter() - began)
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


def beside_before(load: dict[str, Any]) -> str:
    """What this build does in parts of what the one before did."""
    pairs = {"one": load["one"], "many": load["many"], **load["small"]}
    ratios = [f"{what} {median(by['mdl']) / median(by['before']):.2f}" for what, by in pairs.items()]
    return prose("Beside the build before (1: the same; more is faster):", ", ".join(ratios) + ".")


def rate(values: list[float]) -> str:
    return f"{median(values) / 1e9:.2f} ({min(values) / 1e9:.2f} to {max(values) / 1e9:.2f})"


def milliseconds(values: list[float]) -> str:
    return f"{median(values) * 1e3:.1f} ({min(values) * 1e3:.1f} to {max(values) * 1e3:.1f})"


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--seconds", type=int, default=8, help="of each round of wrk")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--before", type=Path, help="another build of mdl, to be held beside this one")
    options.add_argument("--only", choices=("throughput",), help="leave out the rest")
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
        if not args.only:
            asked = [(memory, build) for memory in ("256MiB", "1GiB") for build in builds(args)]
            data["cold"] = [cold_and_memory(root, digests, memory, build) for memory, build in asked]
        data["throughput"] = throughput(root, flat, folder, args)
        if not args.only:
            data["large"] = large(root, folder, args)
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
    text += prose("Small answers, requests a second, the same way:")
    names = {"mdl": "mdl serve", "before": "the build before"}
    names = {name: shown for name, shown in names.items() if name in load["one"]}
    answers = [(what, *(f"{median(by[name]):,.0f}" for name in names)) for what, by in load["small"].items()]
    text += "\n" + table(("", *names.values()), answers)
    if "before" in load["one"]:
        text += beside_before(load)
    if "cold" not in data:
        return text
    text += prose(
        f"Downloads of files that are not in the cache: 64 at once over {REVISIONS} revisions, each a delta of "
        f"the one before."
    )
    cold = data["cold"]
    text += "\n" + table(
        ("--memory", "build", "seconds", "wrong", "peak memory (anonymous, MiB)"),
        [(c["memory"], c["build"], f"{c['seconds']:.1f}", c["wrong"], f"{c['peak_rss'] / MIB:.0f}") for c in cold],
    )
    big = data["large"]
    text += prose(
        f"One tensor ({big['tensor_bytes'] / MIB:.0f} MiB) of a model of {big['bytes'] / (1 << 30):.1f} "
        f"GiB, asked of a server that",
        "was just started and has decoded nothing, in milliseconds:",
        "; ".join(
            f"{name}: as a range of the file {milliseconds(ranges)},"
            f" by name {milliseconds(big['tensor_seconds'][name])}"
            for name, ranges in big["range_seconds"].items()
        )
        + ".",
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
