"""`tests/gpu/check.py` without a GPU, on a kit of stand-ins: its verdicts, and its report."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.cli import ROOT

CHECK = ROOT / "tests/gpu/check.py"
STEPS = "doctor,conformance,fuzz,bench,peers,sanitizers"
DOCTOR = {
    "engine": "cuda:0 (NVIDIA X9, sm_90)",
    "findings": [{"what": "kernels", "good": True, "text": "kept in /srv/k"}],
}
RUST = "test result: ok. 7 passed; 0 failed; 0 ignored"
FUZZ = f"MDL_FUZZ_SEED=77\n4711 rounds of fuzzing\n{RUST}"


def figure(name: str, fraction: float, rate: float, ratio: float | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "bytes": 1 << 30,
        "moved": 1 << 30,
        "runs": 20,
        "kernel_ms": 1.0,
        "kernel_gbps": rate,
        "wall_ms": 2.0,
        "wall_gbps": rate / 2,
        "copy_gbps": 3000.0,
        "fraction": fraction,
        "encoded": None,
        "ratio": ratio,
        "kernels": [{"name": "a_kernel", "ms": 1.0, "launches": 3}],
    }


BENCH: list[dict[str, Any]] = [
    {"device": "cuda:0 (NVIDIA X9, sm_90)", "facts": {"l2_bytes": 1}, "mib": 1024, "runs": 20},
    {"figure": figure("quantise pass over f32", 0.81, 1200)},
    {"figure": figure("histogram of f32", 0.31, 900)},
    {"figure": figure("bf16, encode", 0.1, 420, 1.51)},
    {
        "commit": {
            "parameters": 1_011_353_600,
            "tensors": 115,
            "encoded": 1,
            "ratio": 40.0,
            "runs": 20,
            "released_ms": 9.5,
            "done_ms": 71.0,
            "hash_ms": 3.0,
            "stages": [{"name": "sketch", "ms": 2.0}],
            "kernels": [],
        }
    },
]


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A kit that passes, and a folder of tools for PATH."""
    kit = tmp_path / "kit"
    bench = "\n".join(map(json.dumps, BENCH)) + '\n{"figure": {"name": "cut o'
    script(kit / "bin/mdl", f"print('''{json.dumps(DOCTOR, indent=1)}''')")
    script(kit / "bin/gpu_bench", f"print('''{bench}''')")
    script(kit / "bin/conformance", f"print('''{FUZZ}''' if 'conformance::fuzz' in sys.argv[1:2] else '''{RUST}''')")
    (kit / "kit.json").write_text(json.dumps({"commit": "abc1234"}))
    script(tmp_path / "tools/nvidia-smi", "print('NVIDIA X9 80GB, 580.1, 81559 MiB')")
    script(
        tmp_path / "tools/compute-sanitizer",
        f"name = sys.argv[2]\nassert os.environ['MDL_CONFORMANCE'] == 'gpu'\nprint('''{RUST}''')\n"
        "print('=========', 'ERROR SUMMARY: 0 errors' if name == 'memcheck' else"
        " 'RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)')",
    )
    return kit


def check(kit: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], str]:
    path = f"{kit.parent / 'tools'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    out = kit.parent / "out"
    argv = [sys.executable, str(CHECK), "--kit", str(kit), "--out", str(out), "--fuzz-seconds", "1"]
    done = subprocess.run(
        [*argv, "--steps", STEPS, *more],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "CUDA_PATH": str(kit)},
        timeout=120,
        check=False,
    )
    page, data = out / "gpu-x9-80gb.md", out / "gpu-x9-80gb.json"
    if not out.exists():
        return done, {}, ""
    return done, json.loads(data.read_text()), page.read_text()


def test_models_on_compressed_weights_have_their_targets_on_the_page(kit: Path) -> None:
    """`weights.py` with a stand-in for the package, as it is run there."""
    sys.path.insert(0, str(CHECK.parent))
    try:
        import page
    finally:
        sys.path.remove(str(CHECK.parent))
    found = [
        {"name": "tokens, batch 1", "plain": 100.0, "compressed": 90.0, "of_plain": 0.9, "memory": 0.68},
        {"name": "training", "plain": 10.0, "compressed": 7.0, "of_plain": 0.7, "memory": 0.75, "same": True},
    ]
    device = {"name": "X9", "driver": "1", "memory": "1 MiB"}
    text = page.document({"device": device, "kit": {}, "command": "c", "cores": 1, "date": "d", "weights": found})
    for row in (
        "| tokens, batch 1, of bf16's tokens a second | at least 0.85 | 0.90 | yes |",
        "| tokens, batch 1, of bf16's bytes | at most 0.69 | 0.68 | yes |",
        "| tokens, batch 32, of bf16's tokens a second | at least 0.95 | - | not measured |",
        "| training, of LOMO's steps a second | at least 0.80 | 0.70 | **no** |",
        "| training, of LOMO's peak | at most 0.78 | 0.75 | yes |",
        "| training | 10.00 | 7.00 | 0.70 | 0.75 |  |",
    ):
        assert row in text, f"{row}\nis not in\n{text}"
    (kit / "wheels").mkdir()
    done, data, text = check(kit, "--steps", "weights")
    assert done.returncode == 1, done.stdout + done.stderr
    assert results(data) == {"compressed weights": "failed"}
    assert "What compressed weights said last" in text


def results(data: dict[str, Any]) -> dict[str, str]:
    return {c["name"]: c["result"] for c in data["checks"]}


def test_without_a_gpu_nothing_is_written(kit: Path) -> None:
    (kit.parent / "tools/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    done, data, page = check(kit)
    assert done.returncode == 3, done.stderr
    assert "no GPU" in done.stderr
    assert (data, page) == ({}, "")


def test_a_page_has_every_check_figure_and_target_and_nothing_of_the_machine(kit: Path) -> None:
    done, data, page = check(kit)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(results(data).values()) == {"passed"}
    assert len(data["figures"]) == 3
    for row in (
        "| quantise pass over f32, of the copy's bandwidth, kernels | at least 0.70 | 0.81 | yes |",
        "| histogram of f32, of the copy's bandwidth, kernels | at least 0.50 | 0.31 | **no** |",
        "| bf16, encode, GB/s, kernels | at least 250 | 420 | yes |",
        "| bf16, encode, GB/s, whole call | at least 250 | 210 | **no** |",
        "| bf16, decode, GB/s, kernels | at least 400 | - | not measured |",
        "| commit, ms until the caller's tensors are free | at most 15.00 | 9.50 | yes |",
        "| commit, ms until all is encoded | at most 60.00 | 71.00 | **no** |",
        "4711 rounds of fuzzing",
        "at abc1234",
    ):
        assert row in page, f"{row}\nis not in\n{page}"
    absent = [p for p in data["peers"] if "missing" in p]
    assert all(f"| {p['name']} | - | - | - | - | missing: " in page for p in absent)
    for text in (page, json.dumps(data)):
        for secret in (str(kit.parent), "/srv/", str(ROOT), str(Path.home()) + "/", socket.gethostname()):
            assert len(secret) < 4 or secret not in text, secret


@pytest.mark.parametrize(
    ("program", "text", "failed"),
    [
        ("bin/mdl", 'print(\'{"engine": "cpu"}\')', "mdl doctor"),
        ("bin/conformance", "print('boom in /srv/secret/place.rs')\nsys.exit(101)", "conformance"),
        ("bin/conformance", "print('test result: ok. 0 passed; 0 failed')", "fuzzing"),
        ("bin/gpu_bench", "sys.exit(1)", "measurements"),
        ("../tools/compute-sanitizer", f"print('{RUST}')\nprint('========= ERROR SUMMARY: 2 errors')", "memcheck"),
        ("../tools/compute-sanitizer", f"print('{RUST}')", "racecheck"),
    ],
)
def test_what_fails_is_said(kit: Path, program: str, text: str, failed: str) -> None:
    script(kit / program, text)
    done, data, page = check(kit)
    assert done.returncode == 1, done.stdout + done.stderr
    assert results(data)[failed] == "failed"
    assert f"What {failed} said last" in page
    assert "/srv/" not in page


def test_what_cannot_be_run_or_ended_is_said_and_is_no_failure(kit: Path) -> None:
    (kit.parent / "tools/compute-sanitizer").unlink()
    done, data, page = check(kit, "--steps", "sanitizers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert results(data) == {"memcheck": "skipped", "racecheck": "skipped"}
    assert "compute-sanitizer is not installed" in page
    script(kit.parent / "tools/compute-sanitizer", "print('test a ... ok', flush=True)\ntime.sleep(60)")
    done, data, page = check(kit, "--steps", "sanitizers", "--minutes", "0.05")
    assert done.returncode == 0, done.stdout + done.stderr
    assert results(data) == {"memcheck": "cut off", "racecheck": "cut off"}
    assert "nothing found in the 1 tests" in page


def test_what_the_kit_is_made_of_is_there() -> None:
    made, crate = (ROOT / "tests/gpu/kit.py").read_text(), ROOT / "crates/codec-cuda"
    assert re.findall(r'"--test", "(\w+)"', made) == ["it"]
    assert "mod conformance;" in (crate / "tests/it/main.rs").read_text()
    assert "fn fuzz()" in (crate / "tests/it/conformance/mod.rs").read_text()
    assert all((crate / f"examples/{name}.rs").is_file() for name in re.findall(r'"--example", "(\w+)"', made))
