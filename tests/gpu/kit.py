"""Makes the kit that `check` takes to a machine with a GPU: programs, the Python package, and kernels for the kinds
of GPU there are.

`python tests/gpu/kit.py --out target/gpu-kit`: needs Rust, and NVRTC (`make venv` installs it), but no GPU. Fails if
the kit is larger than what can be taken along.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURES = "80,90,100"
MOST = 60 << 20


def run(argv: Sequence[str | Path], **env: str) -> str:
    """A program's output; its errors go to ours."""
    done = subprocess.run(
        [str(a) for a in argv], cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{argv[0]} failed with exit code {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def built(*what: str, test: bool = False) -> Path:
    """The one program that a release build of this makes."""
    command = [os.environ.get("CARGO", "cargo"), "test" if test else "build", "--release", "--locked", *what]
    command += ["--no-run"] if test else []
    out = run([*command, "--message-format=json"])
    messages = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    found = [m["executable"] for m in messages if m.get("reason") == "compiler-artifact" and m.get("executable")]
    if not found:
        raise SystemExit(f"{' '.join(what)}: no program was built")
    return Path(found[-1])


def nvrtc() -> str:
    """Returns where MDL_NVRTC or this environment has NVRTC 12."""
    if given := os.environ.get("MDL_NVRTC"):
        return given
    for folder in sys.path:
        if list((Path(folder) / "nvidia/cuda_nvrtc/lib").glob("libnvrtc.so.12")):
            return str(Path(folder) / "nvidia/cuda_nvrtc/lib")
    raise SystemExit("NVRTC 12 is not here: install nvidia-cuda-nvrtc-cu12 or name it in MDL_NVRTC")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "target/gpu-kit")
    kit: Path = parser.parse_args().out.resolve()
    compiler = nvrtc()
    shutil.rmtree(kit, ignore_errors=True)
    (kit / "bin").mkdir(parents=True)
    programs = {
        "mdl": built("--bin", "mdl"),
        "conformance": built("-p", "mdl-codec-cuda", "--test", "it", test=True),
        "gpu_bench": built("-p", "mdl-codec-cuda", "--example", "gpu_bench"),
    }
    for name, program in programs.items():
        shutil.copy2(program, kit / "bin" / name)
        run(["strip", kit / "bin" / name])
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    run([*pip, "-w", kit / "wheels", "."])
    run(
        [kit / "bin/mdl", "doctor", "--compile", ARCHITECTURES],
        MDL_KERNEL_CACHE=str(kit / "kernels"),
        MDL_NVRTC=compiler,
    )
    changed = bool(run(["git", "status", "--porcelain", "--untracked-files=no"]).strip())
    about = {
        "commit": run(["git", "rev-parse", "--short", "HEAD"]).strip() + (" with changes" if changed else ""),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "kernels": ARCHITECTURES,
    }
    (kit / "kit.json").write_text(json.dumps(about) + "\n")
    size = sum(f.stat().st_size for f in kit.rglob("*") if f.is_file())
    for part in sorted(kit.iterdir()):
        files = [part] if part.is_file() else [f for f in part.rglob("*") if f.is_file()]
        print(f"{sum(f.stat().st_size for f in files) / (1 << 20):7.2f} MiB  {part.name}")
    print(f"{size / (1 << 20):7.2f} MiB  in all")
    if size > MOST:
        raise SystemExit(f"more than {MOST >> 20} MiB: it cannot be taken along")


if __name__ == "__main__":
    main()
