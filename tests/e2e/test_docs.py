"""Documentation that is made of the program's words: the messages it quotes exist, the code it shows runs."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import ROOT, Mdl, binary
from support.disks import cannot

TROUBLES = ROOT / "docs" / "troubleshooting.md"


def sources() -> str:
    """All of the program's text, its strings as they are printed."""
    files = [
        p for top in ("cli/src", "crates", "server/src") for p in (ROOT / top).rglob("*.rs") if "/tests/" not in str(p)
    ]
    text = "\n".join(p.read_text() for p in sorted(files))
    return re.sub(r"\\\n\s*", "", text)


def quoted() -> list[str]:
    return re.findall(r"^### `(.+)`$", TROUBLES.read_text(), re.MULTILINE)


def test_every_message_that_is_explained_is_one_of_the_program() -> None:
    text = sources()
    messages = quoted()
    assert len(messages) > 25
    missing = []
    for message in messages:
        # `repository not found: ...`: the noun is another string of the program.
        parts = (
            [message.split(" not found: ")[0], " not found: "] if " not found: " in message else message.split("...")
        )
        missing += [(message, part) for part in map(str.strip, parts) if len(part) > 2 and part not in text]
    assert missing == []


def test_a_message_that_is_gone_would_be_noticed() -> None:
    assert "the disk has room for" in sources()
    assert "the disk has rooms for" not in sources()


def test_gradients_are_averaged_and_taken_as_the_policies_page_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "policies.md").read_text()
    section = page.split("## Gradients\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    if subprocess.run([sys.executable, "-c", "import torch, safetensors"], capture_output=True, check=False).returncode:
        cannot("torch is missing in this environment (`make test-python` installs it)")
    program = tmp_path / "program.py"
    program.write_text(
        code
        + """
model = torch.nn.Linear(3, 2, bias=False)
for value in (1.0, 3.0):
    model.weight.grad = torch.full((2, 3), value)
    average_gradients(model)
save_gradients("grads.safetensors")
from safetensors.torch import load_file
grads = load_file("grads.safetensors")
assert list(grads) == [name for name, _ in model.named_parameters()]
# 0.9 * 3 + 0.1 * 1
assert torch.allclose(grads["weight"], torch.full((2, 3), 2.8)), grads
"""
    )
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def small_model(step: int) -> bytes:
    """A safetensors file with an embedding that changes at every third step, and a head of 50,257 rows."""
    rows = 50257
    parts = {
        "embed.weight": ("F32", [4, 2], bytes([step // 3] * 32)),
        "lm_head.weight": ("U8", [rows, 1], bytes([step]) * rows),
    }
    head: dict[str, object] = {}
    data = b""
    for name, (dtype, shape, part) in parts.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_the_commands_of_the_history_page_run_in_their_order(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "history.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 18
    mdl = Mdl.init(tmp_path / "run")
    (mdl.repo / "check.py").write_text("import sys; sys.exit(open(sys.argv[1], 'rb').read()[-1] >= 6)\n")
    (mdl.repo / ".mdlignore").write_text("check.py\nbest\n")
    for step in range(9):
        (mdl.repo / "model.safetensors").write_bytes(small_model(step))
        metrics = [f"loss={2.5 if step >= 6 else 1.5}", f"acc={0.7 if step >= 6 else 0.95}"]
        options = [option for metric in metrics for option in ("--metric", metric)]
        mdl.run("commit", "-m", "warm-up", "--step", str(step), *options, env={"MDL_AUTHOR_NAME": "Ada"})
    mdl.run("tag", "v1.0", "main@step=0")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "mdl").symlink_to(binary())
    (tools / "python").symlink_to(sys.executable)
    said = {}
    for line in lines:
        env = mdl.environment({"PATH": f"{tools}:/usr/bin:/bin"})
        ran = subprocess.run(["bash", "-c", line], cwd=mdl.repo, env=env, capture_output=True, text=True)
        assert ran.returncode == 0, f"{line}\n{ran.stdout}\n{ran.stderr}"
        said[line.split("#")[0].strip()] = ran.stdout
    bad = str(mdl.commit_id("main@step=6"))[:12]
    assert all(bad in text for line, text in said.items() if "bisect run" in line or "bisect --metric" in line)
    assert said["mdl grep-metric 'loss<2' --all -n 5"].count("loss") >= 5


def run_page(page: str, before: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Runs all shell blocks of a page, one after the other, in a directory of its own."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert blocks
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "mdl").symlink_to(binary())
    home, work = place / "home", place / "work"
    work.mkdir()
    env = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "MDL_AUTHOR_NAME": "Ada"}
    script = "\n".join(["set -ex", before, *blocks])
    return subprocess.run(["bash", "-c", script], cwd=work, env=env, capture_output=True, text=True, check=False)


def test_the_page_on_signatures_runs(tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        cannot("ssh-keygen is missing (openssh-client)")
    before = "mkdir -p ~/.ssh; mdl init; echo one > a.txt"
    done = run_page("signing.md", before, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "every byte is what the id says" in done.stdout


def test_the_page_on_work_trees_runs(tmp_path: Path) -> None:
    before = "mdl init; for n in 1 2; do echo $n > a.txt; mdl commit -m $n; done; mdl tag v1.0"
    done = run_page("worktrees.md", before, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 of them shared with earlier checkouts" in done.stdout


def test_the_page_on_provenance_runs_and_its_program_accepts_what_was_signed(tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        cannot("ssh-keygen is missing (openssh-client)")
    # `--command` and `--dataset` have something to say, and the second version something new.
    before = """mkdir -p ~/.ssh data; mdl init; echo text > data/wiki.txt; echo data > .mdlignore; echo one > a.txt
mdl() { command mdl "$@"; [ "$1 $3" != "commit after warm-up" ] || echo two > a.txt; }"""
    done = run_page("provenance.md", before, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Command: python train.py --lr 1e-3" in done.stdout
    work = tmp_path / "work"
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "provenance.md").read_text(), re.DOTALL)
    key = tmp_path / "home" / ".ssh" / "mdl_attest.pub"
    run = [sys.executable, "-c", code, str(work / "model.dsse.json"), str(key)]
    if subprocess.run([sys.executable, "-c", "import cryptography"], capture_output=True, check=False).returncode:
        cannot("cryptography is missing in this environment")
    subprocess.run(run, check=True)
    envelope = json.loads((work / "model.dsse.json").read_text())
    envelope["payload"] = base64.b64encode(base64.b64decode(envelope["payload"]) + b" ").decode()
    (work / "model.dsse.json").write_text(json.dumps(envelope))
    forged = subprocess.run(run, capture_output=True, text=True, check=False)
    assert "InvalidSignature" in forged.stderr


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
