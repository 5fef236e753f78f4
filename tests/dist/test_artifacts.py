"""What `make dist` made is what it says: platforms, symbols, static or not, no trace of this machine, checksums."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = Path(os.environ.get("MDL_DIST", ROOT / "target/dist"))
TOOLS = Path(sys.executable).parent
WHEELS = sorted(DIST.glob("*.whl"))
ARCHIVES = sorted(DIST.glob("*.tar.gz"))
GLIBC = (2, 28)
"""What a wheel may ask for at most."""

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="tools for Linux only")


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files in a wheel, an archive, or the file itself."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                yield name, wheel.read(name)
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            for entry in archive:
                file = archive.extractfile(entry)
                assert file is not None
                yield entry.name, file.read()
    else:
        yield path.name, path.read_bytes()


def test_there_is_a_wheel_and_a_program() -> None:
    assert WHEELS, f"nothing in {DIST}; run `make dist` first"
    assert ARCHIVES


@on_linux
@pytest.mark.parametrize("wheel", WHEELS, ids=lambda path: path.name)
def test_the_wheel_keeps_to_its_platform_and_to_the_stable_abi(wheel: Path) -> None:
    env = os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}"}
    shown = subprocess.run([TOOLS / "auditwheel", "show", wheel], env=env, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    said = " ".join(shown.stdout.split())
    tag = re.search(r'consistent with the following platform tag: "manylinux_(\d+)_(\d+)_\w+"', said)
    assert tag is not None, said
    assert (int(tag[1]), int(tag[2])) <= GLIBC, said
    audited = subprocess.run([TOOLS / "abi3audit", "--strict", "--report", wheel], capture_output=True, text=True)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert "_abi3" in wheel.name or "-abi3-" in wheel.name


@on_linux
@pytest.mark.parametrize("path", [*WHEELS, *ARCHIVES], ids=lambda path: path.name)
def test_programs_ask_for_no_newer_glibc_than_they_say(path: Path, tmp_path: Path) -> None:
    from elftools.elf.elffile import ELFFile

    seen = 0
    for name, data in contents(path):
        if data[:4] != b"\x7fELF":
            continue
        seen += 1
        (tmp_path / "elf").write_bytes(data)
        with (tmp_path / "elf").open("rb") as file:
            elf = ELFFile(file)
            loader = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_INTERP"]
            if "-musl" in path.name:
                assert not loader, f"{name} is not static"
                assert elf.get_section_by_name(".dynamic") is None or not list(needed(elf)), name
                continue
            versions = elf.get_section_by_name(".gnu.version_r")
            asked = {aux.name for _, others in versions.iter_versions() for aux in others}
            numbers = [tuple(map(int, v[6:].split("."))) for v in asked if re.fullmatch(r"GLIBC_[\d.]+", v)]
            assert max(numbers) <= GLIBC, f"{name}: {sorted(asked)}"
    assert seen == (2 if path.suffix == ".whl" else 1)


def needed(elf: object) -> Iterator[str]:
    for tag in elf.get_section_by_name(".dynamic").iter_tags():  # type: ignore[attr-defined]
        if tag.entry.d_tag == "DT_NEEDED":
            yield tag.needed


@pytest.mark.parametrize("path", [*WHEELS, *ARCHIVES, *DIST.glob("*.json")], ids=lambda path: path.name)
def test_nothing_tells_of_the_machine(path: Path) -> None:
    home = Path.home()
    cargo = Path(os.environ.get("CARGO_HOME", home / ".cargo"))
    rustup = Path(os.environ.get("RUSTUP_HOME", home / ".rustup"))
    places = {str(place).encode() for place in (ROOT, cargo, rustup)}
    for name, data in contents(path):
        found = [place for place in places if place in data]
        assert not found, f"{name} has {found}"


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda path: path.name)
def test_the_wheel_has_the_command_licences_and_a_bill_of_materials(wheel: Path) -> None:
    files = dict(contents(wheel))
    info = next(name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    assert f"{info.removesuffix('.dist-info')}.data/scripts/mdl" in files
    assert {f"{info}/licenses/LICENSE-MIT", f"{info}/licenses/LICENSE-APACHE"} <= set(files)
    metadata = files[f"{info}/METADATA"].decode()
    assert "\nName: mdl-checkpoints\n" in metadata
    assert "\nProvides-Extra: torch\n" in metadata
    bills = [name for name in files if name.startswith(f"{info}/sboms/")]
    assert bills
    assert all(json.loads(files[name])["bomFormat"] == "CycloneDX" for name in bills)


@on_linux
def test_checksums_are_of_all_files_and_right() -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=DIST, check=True)
    named = {line.split()[1] for line in (DIST / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_each_archive_has_a_bill_of_materials(archive: Path) -> None:
    bill = json.loads((DIST / archive.name.replace(".tar.gz", ".cdx.json")).read_text())
    assert len(bill["components"]) > 100
