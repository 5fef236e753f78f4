"""All checks of the GPU engine that need a GPU, by one command on a machine with one; it needs neither Rust nor a
network.

`python3 tests/gpu/check.py --kit target/gpu-kit --out docs/benchmarks` takes the programs that `make gpu-kit` built
elsewhere: the conformance suite, fuzzing, the Python package's tests, the measurements and their peers, and both under
compute-sanitizer. It writes gpu-DEVICE.md and .json after every step, so that a run that is cut off leaves what it has.
Exit code 1: a check failed; 3: no GPU here, nothing was written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from page import clean, document, slug

ROOT = Path(__file__).resolve().parents[2]
NO_GPU = 3
SANITIZED = 86
TAIL = 15


@dataclass
class Check:
    """How a step ended: passed, failed, skipped (it cannot be run here) or cut off (it found nothing in its time)."""

    name: str
    result: str
    seconds: float
    remark: str = ""


@dataclass
class Done:
    """How a program ended; the code is None where its time ran out."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def end(self) -> str:
        return "\n".join(line for text in (self.out, self.err) for line in text.strip().splitlines()[-TAIL:])


@dataclass
class Run:
    """The kit, the clock, and what is known so far."""

    kit: Path
    out: Path
    deadline: float
    options: argparse.Namespace
    data: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def program(self, argv: Sequence[str | Path], seconds: float, **env: str) -> Done:
        """Runs a program in a process group of its own, which is killed when its time is over."""
        limit = max(1.0, min(seconds, self.deadline - time.monotonic()))
        environment = {
            **os.environ,
            "MDL_KERNEL_CACHE": str(self.kit / "kernels"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RUST_BACKTRACE": "0",
            **env,
        }
        began = time.monotonic()
        child = subprocess.Popen(
            [str(a) for a in argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=limit)
            code: int | None = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            out, err = child.communicate()
            code = None
        return Done(code, out, err, time.monotonic() - began)

    def add(self, name: str, result: str, seconds: float, remark: str = "") -> None:
        """Notes a check, says so, and writes the page as it stands."""
        check = Check(name, result, round(seconds, 1), clean(remark, [self.kit, self.out, ROOT]))
        self.checks.append(check)
        print(
            f"{check.result:8} {name} ({check.seconds} s) {check.remark.splitlines()[0] if check.remark else ''}",
            flush=True,
        )
        if result == "failed":
            print(check.remark, file=sys.stderr, flush=True)
        self.data["checks"] = [vars(c) for c in self.checks]
        self.out.mkdir(parents=True, exist_ok=True)
        base = self.out / f"gpu-{slug(self.data['device']['name'])}"
        base.with_suffix(".json").write_text(json.dumps(self.data, indent=1) + "\n")
        base.with_suffix(".md").write_text(document(self.data))

    def judge(self, name: str, done: Done, good: str = "", wanted: bool = True) -> None:
        """Notes a check by its exit code, and by whether it did anything at all."""
        if done.code is None:
            self.add(name, "failed", done.seconds, f"its time ran out\n{done.end}")
        elif done.code == 0 and wanted:
            self.add(name, "passed", done.seconds, good)
        else:
            self.add(name, "failed", done.seconds, done.end or f"exit code {done.code}")


def device() -> dict[str, Any] | None:
    """Name, driver and memory of the first GPU."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
        name, driver, memory = (v.strip() for v in done.stdout.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return None
    return {"name": name, "driver": driver, "memory": memory}


def lines(text: str) -> list[dict[str, Any]]:
    """The JSON lines of an output; a last one that was cut off is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [f for f in found if isinstance(f, dict)]


def doctor(run: Run) -> None:
    done = run.program([run.kit / "bin/mdl", "doctor", "--device", "cuda", "--json"], 60)
    facts = next(iter(lines(done.out.replace("\n", " "))), {})
    run.data["findings"] = {f["what"]: clean(f["text"], [run.kit]) for f in facts.get("findings", [])}
    name = facts.get("engine", "")
    run.judge("mdl doctor", done, f"the engine is {name}", name.startswith("cuda"))


def passed(done: Done) -> str:
    """The closing line of Rust's or Python's test runner, if it says that tests ran."""
    found = re.findall(r"test result: ok\. ([1-9]\d* passed)|^=* ?([1-9]\d* passed.*?) in ", done.out, re.M)
    return " ".join("".join(pair) for pair in found)


# Of the tests of mdl-codec-cuda, those that hold every engine to the reference.
FUZZ = "conformance::fuzz"
SUITE = ("conformance::", "--skip", FUZZ)


def conformance(run: Run) -> None:
    binary = run.kit / "bin/conformance"
    done = run.program([binary, *SUITE], 150, MDL_REQUIRE_CUDA="1")
    run.judge("conformance", done, passed(done), bool(passed(done)))


def fuzz(run: Run) -> None:
    binary = run.kit / "bin/conformance"
    seconds = run.options.fuzz_seconds
    env = {"MDL_REQUIRE_CUDA": "1", "MDL_CONFORMANCE": "gpu", "MDL_FUZZ_SECONDS": str(seconds)}
    done = run.program([binary, FUZZ, "--exact", "--nocapture"], seconds + 60, **env)
    facts = re.findall(r"MDL_FUZZ_SEED=\d+$|\d+ rounds of fuzzing", done.out, re.M)
    run.judge("fuzzing", done, ", ".join(facts), bool(passed(done)))


def install(run: Run, folder: str) -> Done:
    """Puts the kit's Python package into a folder."""
    wheels = sorted((run.kit / "wheels").glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", folder, *wheels]
    return run.program(pip, 60)


def package(run: Run) -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = install(run, folder)
        if done.code != 0:
            return run.judge("Python package", done)
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml"]
        done = run.program(
            [*pytest, "--rootdir", ROOT / "python/tests", ROOT / "python/tests/test_cuda.py"],
            90,
            MDL_REQUIRE_CUDA="1",
            MDL_BIN=str(run.kit / "bin/mdl"),
            PYTHONPATH=folder,
        )
        return run.judge("Python package", done, passed(done), bool(passed(done)))


def bench(run: Run) -> None:
    done = run.program([run.kit / "bin/gpu_bench", *run.options.bench.split()], 150)
    for line in lines(done.out):
        if "figure" in line:
            run.data.setdefault("figures", []).append(line["figure"])
        elif "commit" in line:
            run.data["commit"] = line["commit"]
        elif "device" in line:
            run.data["engine"] = line
    count = len(run.data.get("figures", []))
    run.judge("measurements", done, f"{count} figures", count > 0)


def peers(run: Run) -> None:
    done = run.program([sys.executable, ROOT / "tests/gpu/peers.py"], 100)
    run.data["peers"] = lines(done.out)
    absent = [p for p in run.data["peers"] if "missing" in p]
    for peer in absent:
        peer["missing"] = clean(peer["missing"], [run.kit, ROOT])
    names = ", ".join(p["name"] for p in absent)
    run.judge("peers", done, f"missing: {names}" if absent else "", bool(run.data["peers"]))


def weights(run: Run) -> None:
    """Compressed weights in a model: tokens a second, and training steps whose weights have to be plain ones' bits."""
    with tempfile.TemporaryDirectory() as folder:
        done = install(run, folder)
        if done.code == 0:
            script = [sys.executable, ROOT / "tests/gpu/weights.py", *run.options.weights.split()]
            done = run.program(script, 120, PYTHONPATH=folder)
    run.data["weights"] = lines(done.out)
    absent = [f"{w['name']}: {clean(w['missing'], [run.kit, ROOT])}" for w in run.data["weights"] if "missing" in w]
    unlike = [w["name"] for w in run.data["weights"] if w.get("same") is False or w.get("apart", 0) > 0.02]
    if done.code == 0 and (absent or unlike):
        done.err = "\n".join([*absent, *(f"{name}: other numbers than plain weights'" for name in unlike)])
    run.judge("compressed weights", done, "", bool(run.data["weights"]) and not absent and not unlike)


def sanitizers(run: Run) -> None:
    """memcheck and racecheck over the conformance suite, small sizes, the GPU alone."""
    toolkit = Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"))
    tool = shutil.which("compute-sanitizer") or shutil.which(toolkit / "bin/compute-sanitizer")
    env = {"MDL_REQUIRE_CUDA": "1", "MDL_CONFORMANCE": "gpu", "MDL_CONFORMANCE_SIZES": "small"}
    for name, share in (("memcheck", 0.5), ("racecheck", 1.0)):
        if tool is None:
            run.add(name, "skipped", 0, "compute-sanitizer is not installed")
            continue
        command = [
            tool,
            "--tool",
            name,
            "--error-exitcode",
            str(SANITIZED),
            "--print-limit",
            "20",
            run.kit / "bin/conformance",
        ]
        left = run.deadline - time.monotonic()
        done = run.program([*command, *SUITE, "--test-threads=1"], share * left, **env)
        said = done.out + done.err
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", said)
        found = re.findall(r"={9}\s+(Invalid|Error: |Warning: |Program hit|Race reported).*", said)
        if "Device not supported" in said:
            run.add(name, "skipped", done.seconds, "compute-sanitizer does not support this device")
        elif done.code is None and not found:
            count = len(re.findall(r"^test .*\bok$", said, re.M))
            run.add(name, "cut off", done.seconds, f"nothing found in the {count} tests that ended in this time")
        else:
            clear = bool(summary) and all(s.startswith("0 ") for s in summary)
            run.judge(name, done, f"{', '.join(summary)}; {passed(done)}", clear and bool(passed(done)))


STEPS = (doctor, conformance, fuzz, package, weights, bench, peers, sanitizers)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kit", type=Path, default=ROOT / "target/gpu-kit", help="what `make gpu-kit` made")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "docs/benchmarks", help="folder for the Markdown and JSON report"
    )
    parser.add_argument("--minutes", type=float, default=10, help="time for all of it")
    parser.add_argument("--fuzz-seconds", type=int, default=20)
    parser.add_argument("--bench", default="", help="options for gpu_bench")
    parser.add_argument("--weights", default="", help="options for weights.py")
    names = [step.__name__ for step in STEPS]
    parser.add_argument("--steps", type=lambda s: s.split(","), default=names, help=f"some of {','.join(names)}")
    options = parser.parse_args(argv)
    there = device()
    if there is None:
        print("no GPU here (nvidia-smi shows none): nothing was checked, nothing was written", file=sys.stderr)
        return NO_GPU
    kit = options.kit.resolve()
    if not (kit / "kit.json").is_file():
        print("no kit here: `make gpu-kit` makes it, on a machine with Rust", file=sys.stderr)
        return 2
    run = Run(kit, options.out.resolve(), time.monotonic() + 60 * options.minutes, options)
    run.data = {
        "device": there,
        "kit": json.loads((kit / "kit.json").read_text()),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "command": "python3 tests/gpu/check.py --kit target/gpu-kit --out docs/benchmarks",
        "cores": os.cpu_count(),
    }
    for step in STEPS:
        if step.__name__ in options.steps:
            step(run)
    failed = [c.name for c in run.checks if c.result == "failed"]
    print(f"failed: {', '.join(failed)}" if failed else "no check failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
