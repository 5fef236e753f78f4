"""Every verb over HTTP alone, with the curl commands of docs/http-api.md as they stand there."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli import ROOT, Mdl
from support.makers import write_small_checkpoint
from support.server import Server, create_token
from support.tensors import read_safetensors

pytestmark = pytest.mark.skipif(not shutil.which("curl") or not shutil.which("jq"), reason="curl or jq is missing")

DOCUMENT = (ROOT / "docs" / "http-api.md").read_text()
JOB_SECONDS = 60


def commands() -> list[str]:
    """The lines of the document that run curl, with continued lines joined."""
    blocks = re.findall(r"^```\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if "curl " in line]


class Shell:
    """Runs the document's commands in a folder, with its variables."""

    def __init__(self, server: Server, folder: Path, token: str) -> None:
        self.folder = folder
        api = f"{server.url}/api/v1/repos/ada/gpt"
        self.variables = {
            "MDL": server.url,
            "R": api,
            "AUTH": f"Authorization: Bearer {token}",
            "PATH": "/usr/bin:/bin",
        }
        self.done: set[str] = set()

    def run(self, *words: str, change: Mapping[str, str] | None = None, **variables: str) -> str:
        """Runs the one command that has all these words, with what the document cannot know changed; its output."""
        found = [line for line in commands() if all(word in line for word in words)]
        assert len(found) == 1, f"{words}: {len(found)} commands"
        self.done.add(found[0])
        line = found[0]
        for old, new in (change or {}).items():
            assert old in line
            line = line.replace(old, new, 1)
        return self.line(line, **variables)

    def line(self, line: str, **variables: str) -> str:
        line = line.replace("curl ", "curl -sS --fail-with-body ", 1) if line.startswith("curl ") else line
        line = line.replace("| curl ", "| curl -sS --fail-with-body ")
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.variables | variables,
        )
        late = "# cancel" in line and "the job is over" in ran.stdout
        assert ran.returncode == 0 or late, f"{line}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def json(self, *words: str, change: Mapping[str, str] | None = None, **variables: str) -> Any:
        return json.loads(self.run(*words, change=change, **variables))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    root = tmp_path / "root"
    root.mkdir()
    folder = tmp_path / "folder"
    folder.mkdir()
    token = create_token(root)
    with Server(root) as server:
        yield Shell(server, folder, token)


def over(shell: Shell, job: str) -> Any:
    """A job that has ended."""
    for _ in range(JOB_SECONDS * 20):
        found = shell.json("$R/jobs/$JOB", "# state", JOB=job)
        if found["state"] not in ("queued", "running"):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{job} does not end")


def test_every_verb(shell: Shell, tmp_path: Path) -> None:
    out = shell.folder / "out"
    assert shell.json("POST $MDL/api/v1/repos", "ada/gpt")["name"] == "ada/gpt"

    first = write_small_checkpoint(make(out), 1)
    model = (first / "model.safetensors").read_bytes()
    made = shell.json("meta={", "step 100")
    assert made["step"] == 100
    write_small_checkpoint(out, 2)
    second = shell.json("tar -C out")
    for seed in (3, 4, 5):
        write_small_checkpoint(out, seed)
        shell.json("tar -C out")

    log = shell.json("$R/log?limit=20")["commits"]
    assert len(log) == 5
    assert log[-1]["commit"] == made["commit"]
    author = {"author=ada": f"author={log[-1]['author']['name']}", "*embed*": "layers*"}
    assert [c["step"] for c in shell.json("since=7d", change=author)["commits"]] == [100]
    assert shell.run("@best(loss)").split() == ["100", "0.41"]
    assert shell.json("$R/commits/main")["commit"] == log[0]["commit"]

    branch = shell.json("heads/try%2Flr-1e-4", "PUT")
    assert branch["new"] == second["commit"]
    assert shell.json("tags/v1", "PUT")["name"] == "refs/tags/v1"
    names = json.dumps(shell.json('"$R/refs"'))
    assert "try/lr-1e-4" in names
    assert "v1" in names
    shell.run("DELETE", "heads/try", ID=branch["new"])

    assert shell.json("tree/main", "tensors=true")["files"] is not None
    difference = shell.json("diff?a=main~1")
    assert {f["path"] for f in difference["files"]} >= {"model.safetensors"}
    blamed = shell.json("$R/blame", change={"*wte*": "layers*"})
    assert [len(t["changes"]) for t in blamed["tensors"]] == [5] * len(blamed["tensors"])
    assert blamed["tensors"][0]["changes"][-1]["rel_l2"] > 0
    assert shell.json("POST", "$R/notes/main", "mmlu")["notes"]["mmlu"]["value"] == 0.47
    assert sorted(shell.json('AUTH" "$R/notes/main"')["notes"]) == ["mmlu", "wandb"]
    shell.run("files/main/model.safetensors")
    assert (shell.folder / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()
    listed = shell.json("tensors/main/model.safetensors")
    assert len(listed["tensors"]) == len(read_safetensors(out / "model.safetensors")[0])

    rows = shell.run("wte.weight", change={"wte.weight": "layers.0.weight"})
    assert rows == ""
    values = np.load(shell.folder / "rows.npy")
    wanted = next(t for t in read_safetensors(out / "model.safetensors")[0] if t.name == "layers.0.weight").array()
    assert np.array_equal(values, wanted[0:10])

    shutil.rmtree(out)
    out.mkdir()
    shell.run("checkout/v1", "tar -x")
    assert (out / "notes" / "run.txt").read_text() == "run 5\n"
    shell.run("checkout/v1", "safetensors")
    assert len(read_safetensors(shell.folder / "all.safetensors")[0]) == len(listed["tensors"])
    assert shell.json('"$R/stats"')["commits"] == 5

    uploaded(shell, model)
    jobs(shell)
    run = Mdl(tmp_path / "root" / "ada" / "gpt").run("fsck")
    assert run.code == 0
    assert set(commands()) == shell.done, "every command of the document is run"


def make(folder: Path) -> Path:
    (folder / "optimizer").mkdir(parents=True)
    (folder / "optimizer" / "state.json").write_text("{}\n")
    return folder


def uploaded(shell: Shell, model: bytes) -> None:
    """The upload of a large file, whose size and digest the document cannot know."""
    (shell.folder / "model.safetensors").write_bytes(model)
    about = {"2000000000": str(len(model)), "...": hashlib.sha256(model).hexdigest()}
    upload = shell.json('"size": 2000000000', change=about)["id"]
    assert "upload-offset: 0" in shell.run("-I", "$R/uploads/$UP", UP=upload).lower()
    shell.run("PATCH", "$R/uploads/$UP", UP=upload)
    assert shell.json('"step": 300', UP=upload)["step"] == 300


def jobs(shell: Shell) -> None:
    """fsck, compact and gc."""
    for kind in ("fsck", "compact", "gc"):
        job = shell.json('"kind": "fsck"', change={"fsck": kind})
        ended = over(shell, job["id"])
        assert ended["state"] == "done", ended
        if kind == "fsck":
            assert ended["result"]["ok"] is True
    again = shell.json('"kind": "fsck"')
    shell.run("# cancel", JOB=again["id"])
    assert over(shell, again["id"])["state"] in ("cancelled", "done")
