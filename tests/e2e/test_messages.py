"""Messages that tell a new user what to do: evaluators, policies, authors, tokens, differences between versions."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from support import makers
from support.cli import NOT_FOUND, OK, USAGE, USER, Mdl
from support.server import Server, create_token
from support.tensors import Tensor, write_safetensors


def lossy(evaluator: str, *options: str) -> tuple[str, ...]:
    return ("--policy", "lattice", "--eval", evaluator, *options)


# Lossy commits


def test_an_evaluator_without_a_number_is_quoted_and_nothing_is_committed(mdl: Mdl, source: Path) -> None:
    makers.write_small_checkpoint(source, 1)
    commit = ("commit", source, "-m", "x")
    mdl.run(*commit, *lossy("echo loss=0.5"), code=USER).complains("gave no number", '"loss=0.5"', "--keep-going")
    script = "seq 1 40 >&2; echo 'No module named torch' >&2; exit 3"
    failed = mdl.run(*commit, *lossy(script), code=USER)
    failed.complains("exit status: 3", "it said: 37 / 38 / 39 / 40 / No module named torch")
    mdl.run(*commit, *lossy("true"), code=USER).complains("it printed nothing")
    assert mdl.commit_id("main") is None
    mdl.run("plan", source, *lossy("echo loss=0.5"), code=USER).complains('"loss=0.5"')
    done = mdl.run(*commit, *lossy("echo loss=0.5", "--keep-going"))
    done.complains("warning", "the evaluator gave no number", '"loss=0.5"')
    assert mdl.log("main")[0]["quality"]["family"] == "lossless"


def test_what_is_stored_exactly_gains_nothing_and_is_not_measured(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    def weights(seed: int) -> None:
        values = np.random.default_rng(seed).standard_normal((64, 512)).astype(np.float32)
        write_safetensors(source / "model.safetensors", [Tensor.of("layer.weight", values)])

    for seed in (1, 2):
        weights(seed)
        mdl.commit(source, f"exact {seed}")
    before = mdl.packed()
    options = ("--allow-empty", *lossy(f"touch {ran}; echo 1"))
    mdl.run("commit", source, "-m", "again", *options).complains("nothing is to be gained")
    weights(1)
    mdl.run("commit", source, "-m", "the first", *options).complains("nothing is to be gained")
    assert not ran.exists()
    assert mdl.packed() - before < 16 << 10
    # What is new is measured.
    weights(3)
    assert "gained" not in mdl.run("commit", source, "-m", "new", *options).err
    assert ran.exists()


def test_policies_are_checked_where_they_are_named(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    makers.write_small_checkpoint(source, 1)
    mdl.run("commit", source, "-m", "x", "--policy", "nobody", code=NOT_FOUND).complains("nobody", "mdl policy list")
    bad = tmp_path / "bad.toml"
    bad.write_text('try = ["lattice"]\n[keep]\nexact_best = { metric = "of our own" }\n')
    for argv in (["policy", "edit", "mine", "--from", bad], ["commit", source, "-m", "x", "--policy", bad]):
        mdl.run(*argv, code=(USER, USAGE)).complains("of our own")
    assert mdl.commit_id("main") is None


def test_policies_are_shown_without_a_repository(tmp_path: Path) -> None:
    nowhere = Mdl(tmp_path)
    shown = nowhere.run("policy", "show", "lossy", repo_flag=False)
    shown.names("try = ", "[gate]")
    listed = nowhere.json("policy", "list", repo_flag=False)
    assert "paper" in [p["name"] for p in listed["policies"]]
    nowhere.run("policy", "show", "mine", repo_flag=False, code=NOT_FOUND).complains("mdl init")


def test_an_unknown_author_is_hinted_at_once(mdl: Mdl, source: Path) -> None:
    anyone = {"USER": "", "XDG_CONFIG_HOME": str(source / "none")}
    hints = []
    for seed in (1, 2, 3):
        makers.write_small_checkpoint(source, seed)
        hints.append("user.name" in mdl.run("commit", source, "-m", "x", env=anyone).err)
    assert hints == [True, False, False]
    mdl.run("config", "user.name", "Ada")
    makers.write_small_checkpoint(source, 4)
    assert "user.name" not in mdl.run("commit", source, "-m", "x", env=anyone).err


def test_versions_of_a_policy_show_the_errors_of_each_tensor(mdl: Mdl, source: Path) -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((64, 512)).astype(np.float32)
    for step in (1, 2):
        weights = weights + 0.01 * rng.standard_normal(weights.shape).astype(np.float32)
        write_safetensors(source / "model.safetensors", [Tensor.of("layer.weight", weights)])
        mdl.commit(source, f"step {step}", "--step", str(step), *lossy("echo 1"))
    assert mdl.log("main")[0]["quality"]["family"] == "lattice"
    mdl.run("show", "-t").names("rel. error", "worst row", "layer.weight")
    assert mdl.json("show")["report"][0]["rel_l2"] is not None


# Differences


@pytest.fixture
def two(mdl: Mdl, source: Path) -> Mdl:
    base = {name: np.zeros(1000, np.float32) + 1 for name in ("b.attn", "a.mlp", "c.attn", "d.norm")}
    (source / "note.txt").write_text("one\n")
    write_safetensors(source / "model.safetensors", [Tensor.of(n, v) for n, v in base.items()])
    mdl.commit(source, "one")
    base["b.attn"][:10] += 5
    base["a.mlp"][:500] += 0.1
    base["c.attn"] *= -2
    (source / "note.txt").write_text("two\n")
    write_safetensors(source / "model.safetensors", [Tensor.of(n, v) for n, v in base.items()])
    mdl.commit(source, "two")
    return mdl


def names(mdl: Mdl, *options: str) -> list[str]:
    files = mdl.json("diff", "main~1", "main", *options)["files"]
    return [t["name"] for f in files for t in f["tensors"]]


def test_tensors_of_a_difference_are_sorted_and_chosen(two: Mdl) -> None:
    assert names(two, "--sort", "name") == ["a.mlp", "b.attn", "c.attn"]
    assert names(two, "--sort", "changed") == ["c.attn", "a.mlp", "b.attn"]
    assert names(two, "--sort", "max") == ["b.attn", "c.attn", "a.mlp"]
    assert names(two, "--sort", "rel-l2") == ["c.attn", "b.attn", "a.mlp"]
    assert names(two, "--sort", "cosine")[0] == "c.attn"
    assert sorted(names(two, "--only", "*attn")) == ["b.attn", "c.attn"]
    files = two.json("diff", "main~1", "main", "--only", "note.txt")["files"]
    assert [f["path"] for f in files] == ["note.txt"]
    assert len(names(two, "--only", "*.safetensors")) == 3


def test_a_difference_is_summed_up_in_a_line_a_file(two: Mdl) -> None:
    shown = two.run("diff", "main~1", "main", "--stat")
    lines = [line.split() for line in shown.out.splitlines()]
    (model,) = [line for line in lines if line[0] == "model.safetensors"]
    assert model[1:] == ["modified", "3", "1", "3", "5"], shown
    assert shown.out.splitlines()[-1] == "2 files changed; 3 tensors differ"
    two.run("diff", "main", "--stat", "--files", code=USAGE)
    assert two.run("diff", "main", "main", "--stat", code=OK).out == "0 files changed; 0 tensors differ\n"


# Servers


def test_a_server_says_that_no_token_was_sent(tmp_path: Path) -> None:
    Mdl.init(tmp_path / "root" / "ada/gpt", "--bare")
    create_token(tmp_path / "root")
    with Server(tmp_path / "root") as server:
        for path, body in (("/api/v1/repos", b'{"name": "ada/new"}'), ("/api/v1/repos/ada/gpt", None)):
            request = urllib.request.Request(server.url + path, data=body, headers={"Content-Type": "application/json"})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request)
            answer = json.loads(refused.value.read())
            assert refused.value.code == 401
            assert "no token was sent" in json.dumps(answer)
            assert "MDL_TOKEN" in json.dumps(answer)
            assert "administer" not in json.dumps(answer)
        mine = Mdl.init(tmp_path / "mine")
        makers.write_small_checkpoint(tmp_path / "folder", 1)
        mine.commit(tmp_path / "folder", "x")
        mine.run("push", f"{server.url}/ada/gpt", "main", code=USER).complains("no token was sent", "MDL_TOKEN")


def test_a_server_says_what_nobody_reaches(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("solo", "ada/gpt", "bob/net"):
        Mdl.init(root / name, "--bare")

    def said(served: Path) -> str:
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        with Server(served, log=log):
            return log.read_text()

    open_to_all = said(root)
    assert 'directories="solo"' in open_to_all
    assert "no token is good" not in open_to_all
    create_token(root, repo="ada/*")
    guarded = said(root)
    assert 'directories="solo"' in guarded
    assert 'repositories="bob/net"' in guarded
    create_token(root)
    assert "no token is good" not in said(root)
    alone = said(root / "solo")
    assert "not served" not in alone


# Lossy commits while they are new


def test_a_listing_tells_what_an_approximation_takes_beside_the_whole(mdl: Mdl, source: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((256, 256)).astype(np.float32)
    for step in (1, 2):
        values = values + rng.normal(0, 0.01, values.shape).astype(np.float32)
        write_safetensors(source / "model.safetensors", [Tensor.of("layer.weight", values)])
        done = mdl.run("commit", source, "-m", "x", "--step", str(step), "--policy", "lossy", "--eval", "echo 1")
        said = re.search(r"exact while new: \S+ KiB; (\S+ KiB \(\S+x\) once approximate)", done.out)
        assert said, done.out
        assert said[1] in mdl.run("log", "-1", "--oneline").out
        newest = mdl.log("main")[0]
        later = newest["stored_bytes"] - newest["quality"]["exact_bytes"]
        assert 0 < later < newest["quality"]["exact_bytes"]
        assert said[1].startswith(f"{later / 1024:.1f} KiB")
