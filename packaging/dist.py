"""Builds what a release of `mdl` hands out: wheels, programs, a bill of materials, checksums. `make dist` runs it.

    python packaging/dist.py --out target/dist [--target TRIPLE ...]

The same commit and the same compiler give the same bytes, in whichever directory: times are those of the commit
(SOURCE_DATE_EPOCH), and no path of this machine is left in a file. Linking is zig's, against the oldest glibc that Rust
supports, so that what is built here runs on older systems too.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import shlex
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import sbom
from build_backend import clear_command, place_command

ROOT = Path(__file__).resolve().parents[1]
# The oldest that Rust's own library runs on.
GLIBC = "2.17"
WITH_THE_PROGRAM = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md", "packaging/mdl-serve.service"]
# What is made here, and goes when it is made anew.
MADE = ["mdl_checkpoints-*.whl", "mdl-*.tar.gz", "mdl-*.cdx.json", "SHA256SUMS"]


def said(*call: str) -> str:
    return subprocess.run(call, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def has_std(target: str) -> bool:
    """Whether the compiler can build for a target: its library is installed, or cargo is told to build it."""
    if "CARGO_UNSTABLE_BUILD_STD" in os.environ:
        return True
    return any(Path(said("rustc", "--print", "target-libdir", "--target", target)).glob("libstd-*.rlib"))


def default_targets() -> list[str]:
    machine = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    if sys.platform == "darwin":
        return [f"{machine}-apple-darwin"]
    return [f"{machine}-unknown-linux-gnu", f"{machine}-unknown-linux-musl"]


def environment() -> dict[str, str]:
    """Variables that keep a build apart from its machine."""
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry/src"
    # The last that fits counts: what build scripts write lies in the target directory, wherever that is.
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    names = {str(registry): "crates", str(ROOT): "mdl", str(ROOT / target): "target"}
    # Sources of Rust's own library, where they are installed: else the compiler knows no path to them.
    rust = Path(said("rustc", "--print", "sysroot")) / "lib/rustlib/src/rust"
    if rust.is_dir():
        names[str(rust)] = "rust"
    env = dict(os.environ)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    if "SOURCE_DATE_EPOCH" not in env:
        env["SOURCE_DATE_EPOCH"] = said("git", "log", "-1", "--format=%ct")
    if "MDL_COMMIT" not in env and (ROOT / ".git").exists():
        env["MDL_COMMIT"] = said("git", "rev-parse", "HEAD")
    env["CARGO_INCREMENTAL"] = "0"
    env["RUSTFLAGS"] = " ".join(f"--remap-path-prefix={path}={name}" for path, name in names.items())
    env["CFLAGS"] = " ".join(f"-ffile-prefix-map={path}={name}" for path, name in names.items())
    return env


def maturin(target: str, manifest: Path, out: Path, env: dict[str, str], *more: str) -> Path:
    """The wheel that maturin makes of a crate. It builds programs too, so that both come from one set of objects."""
    call = ["maturin", "build", "--release", "--locked", "--target", target, "--manifest-path", str(manifest)]
    call += ["--out", str(out), *more]
    if target.endswith("-linux-gnu"):
        call += ["--zig", "--compatibility", f"manylinux_{GLIBC.replace('.', '_')}"]
    elif target.endswith("-linux-musl"):
        call += ["--zig", "--compatibility", "musllinux_1_2"]
    print(f"$ {shlex.join(call)}", file=sys.stderr, flush=True)
    before = set(out.glob("*.whl"))
    subprocess.run(call, cwd=ROOT, env=env, check=True)
    return (set(out.glob("*.whl")) - before).pop()


def build_program(target: str, folder: Path, env: dict[str, str]) -> Path:
    """The program for a target, taken out of the wheel that would install it alone."""
    clear_command()
    with zipfile.ZipFile(maturin(target, ROOT / "cli/Cargo.toml", folder, env, "--bindings", "bin")) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".data/scripts/mdl"))
        program = folder / "mdl"
        program.write_bytes(wheel.read(name))
    program.chmod(0o755)
    return program


def build_wheel(target: str, program: Path, bill: Path, out: Path, env: dict[str, str]) -> None:
    """The wheel: the package with its extension module, and the program as its command."""
    place_command(program)
    maturin(target, ROOT / "python/Cargo.toml", out, env, "--sbom-include", str(bill))


def pack(program: Path, name: str, out: Path, epoch: int) -> None:
    """An archive of the program and the files that go with it; the same bytes for the same files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in [program, *(ROOT / other for other in WITH_THE_PROGRAM)]:
            entry = tarfile.TarInfo(f"{name}/{path.name}")
            entry.size, entry.mtime = path.stat().st_size, epoch
            entry.mode = 0o755 if path == program else 0o644
            with path.open("rb") as file:
                archive.addfile(entry, file)
    (out / f"{name}.tar.gz").write_bytes(gzip.compress(held.getvalue(), 9, mtime=0))


def write_checksums(out: Path) -> None:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.iterdir())
        if path.name != "SHA256SUMS"
    ]
    (out / "SHA256SUMS").write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "target/dist")
    parser.add_argument("--target", action="append", help="a target triple; this machine's if none is given")
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (path for kind in MADE for path in out.glob(kind)):
        old.unlink()
    env = environment()
    epoch = int(env["SOURCE_DATE_EPOCH"])
    os.environ["SOURCE_DATE_EPOCH"] = env["SOURCE_DATE_EPOCH"]
    version = said("cargo", "pkgid", "-p", "mdl-cli").rpartition("#")[2].rpartition("@")[2]
    for target in args.target or default_targets():
        if not has_std(target):
            if args.target:
                raise SystemExit(f"Rust's library for {target} is missing: rustup target add {target}")
            print(f"LEFT OUT: {target}: Rust's library for it is missing (rustup target add {target})", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            program = build_program(target, Path(folder), env)
            pack(program, f"mdl-{version}-{target}", out, epoch)
            # A static program has no dynamic linker, and Python's modules are loaded by one.
            static = target.endswith("-musl")
            bill = out / f"mdl-{version}-{target}.cdx.json"
            linked = sbom.bill(["mdl-cli"] if static else ["mdl-cli", "mdl-python"], target)
            bill.write_text(json.dumps(linked, indent=1) + "\n")
            if not static:
                build_wheel(target, program, bill, out, env)
    write_checksums(out)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size / (1 << 20):8.1f} MiB  {path.name}")


if __name__ == "__main__":
    main()
