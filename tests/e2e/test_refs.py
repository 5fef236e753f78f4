"""Branches, tags, revisions, reflog, merge, work tree and .mdlignore, as a person used to git expects them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support import makers
from support.cli import CONFLICT, NOT_FOUND, OK, USAGE, USER, Mdl, assert_same, files_of

HEX = re.compile(r"[0-9a-f]{64}")


def test_revision_syntax(small: Mdl) -> None:
    """`small` has three commits: steps 100, 200, 300 with losses 1.0, 0.5, 0.9."""
    third, second, first = (entry["id"] for entry in small.log("main"))
    assert len({first, second, third}) == 3
    assert all(HEX.fullmatch(i) for i in (first, second, third))
    wanted = {
        "main": third,
        "HEAD": third,
        "main~0": third,
        "main~1": second,
        "main~": second,
        "HEAD^": second,
        "HEAD^^": first,
        "main~2": first,
        "HEAD~1^": first,
        "main@{0}": third,
        "main@{1}": second,
        "main@{2}": first,
        "main@step=200": second,
        "main@best(loss)": second,
        second: second,
        second[:12]: second,
        f"{third[:10]}~2": first,
    }
    assert {rev: small.commit_id(rev) for rev in wanted} == wanted


@pytest.mark.parametrize(
    "rev",
    ["main~3", "main^^^", "HEAD^2", "nope", "main@{9}", "main@step=150", "main@best(wer)", "0" * 64, "f" * 12],
)
def test_revision_that_is_not_there(rev: str, small: Mdl) -> None:
    small.run("show", rev, code=NOT_FOUND).complains(rev.split("@")[0].split("~")[0].split("^")[0])


@pytest.mark.parametrize(
    "rev", ["main~x", "main@{", "main@best(", "main@step=", "", "main..dev", "main@best(nope)", "a b"]
)
def test_revision_that_is_malformed(rev: str, small: Mdl) -> None:
    small.run("show", rev, code=(USER, USAGE, NOT_FOUND)).complains()


def test_ambiguous_prefix(small: Mdl, source: Path) -> None:
    """17 commits share a first digit somewhere: that prefix is refused and the candidates are named."""
    for i in range(17):
        small.commit(source, f"empty {i}", "--allow-empty")
    ids = [entry["id"] for entry in small.log("main")]
    digit = next(d for d in "0123456789abcdef" if sum(i.startswith(d) for i in ids) > 1)
    result = small.run("show", digit, code=(USER, USAGE, NOT_FOUND))
    result.complains()


def test_branches_and_tags(small: Mdl, source: Path, tmp_path: Path) -> None:
    first = small.commit_id("main~2")
    small.run("branch", "dev", "main~2")
    makers.write_small_checkpoint(source, 9)
    small.commit(source, "on dev", "--branch", "dev")
    assert small.commit_id("dev~1") == first
    assert small.log("main")[0]["message"].strip() == "checkpoint 3"
    small.run("tag", "v1", "main~1")
    small.run("tag", "v2", "dev", "-a", "-m", "released")
    assert small.commit_id("v1") == small.commit_id("main~1")
    assert small.commit_id("v2") == small.commit_id("dev")
    assert "released" in small.run("show", "v2").out
    assert {"v1", "v2"} <= set(small.run("tag").out.split())
    assert {"dev", "main"} <= set(small.run("branch").out.replace("*", " ").split())
    assert_same(source, small.checkout("v2", tmp_path / "out"))
    small.run("tag", "v1", "-d")
    small.run("show", "v1", code=NOT_FOUND)
    small.run("branch", "dev", "-d", code=(OK, USER, CONFLICT))


def test_tag_is_not_moved_silently(small: Mdl) -> None:
    small.run("tag", "v1", "main~1")
    before = small.commit_id("v1")
    small.run("tag", "v1", "main", code=(USER, CONFLICT)).complains("v1")
    assert small.commit_id("v1") == before


def test_rename_and_delete_branch(small: Mdl) -> None:
    small.run("branch", "old", "main~1")
    tip = small.commit_id("old")
    small.run("branch", "-m", "old", "new")
    assert small.commit_id("new") == tip
    small.run("show", "old", code=NOT_FOUND)
    small.run("branch", "-d", "new")
    small.run("show", "new", code=NOT_FOUND)
    small.run("branch", "-d", "new", code=NOT_FOUND).complains("new")


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/abs",
        "a..b",
        "a//b",
        "a/",
        ".hidden",
        "a/.b",
        "x.lock",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "a\\b",
        "a\nb",
        "@",
        "HEAD",
    ],
)
@pytest.mark.parametrize("verb", ["branch", "tag"])
def test_bad_ref_names(verb: str, name: str, small: Mdl) -> None:
    before = sorted(files_of(small.store / "refs"))
    small.run(verb, name, code=(USER, USAGE)).complains()
    assert sorted(files_of(small.store / "refs")) == before
    assert not (small.store / "evil").exists()


def test_ref_names_that_contain_each_other(small: Mdl) -> None:
    """`a` and `a/b` may coexist or conflict, but no ref may be lost."""
    small.run("branch", "a")
    done = small.run("branch", "a/b", code=(OK, USER, CONFLICT))
    assert small.commit_id("a") == small.commit_id("main")
    assert (small.commit_id("a/b") is not None) == (done.code == OK)


def test_reflog_and_reset(small: Mdl) -> None:
    third, second, _ = (entry["id"] for entry in small.log("main"))
    small.run("reset", "main~1")
    assert small.commit_id("main") == second
    assert small.commit_id("main@{1}") == third
    assert "reset" in small.run("reflog", "main").out
    small.run("reset", "main@{1}")
    assert small.commit_id("main") == third


def test_merge_fast_forward(small: Mdl, source: Path) -> None:
    small.run("branch", "dev")
    makers.write_small_checkpoint(source, 5)
    small.commit(source, "ahead", "--branch", "dev")
    small.run("merge", "dev")
    assert small.commit_id("main") == small.commit_id("dev")
    assert "up to date" in small.run("merge", "dev").out.lower().replace("-", " ")


def test_merge_of_diverged_branches_is_refused(small: Mdl, source: Path) -> None:
    small.run("branch", "dev", "main~1")
    makers.write_small_checkpoint(source, 5)
    small.commit(source, "elsewhere", "--branch", "dev")
    tip = small.commit_id("main")
    small.run("merge", "dev", code=(USER, CONFLICT)).complains("dev")
    assert small.commit_id("main") == tip


def test_log_forms(small: Mdl) -> None:
    assert len(small.run("log", "--oneline").out.splitlines()) == 3
    assert len(small.log("main", "-n", "2")) == 2
    graph = small.run("log", "--graph").out
    assert graph.count("*") >= 3
    assert "checkpoint 2" in graph
    assert "\x1b[" not in graph


def test_diff_names_what_changed(small: Mdl) -> None:
    out = small.run("diff", "main~1", "main").out
    assert "model.safetensors" in out
    assert "layers.0.weight" in out
    document = small.json("diff", "main~1", "main")
    assert "layers.3.weight" in str(document)
    assert "layers" not in str(small.json("diff", "main", "main"))


# --- the work tree ---------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(mdl: Mdl) -> Mdl:
    """Two commits made from the work tree itself."""
    for seed in (1, 2):
        makers.write_small_checkpoint(mdl.repo, seed)
        mdl.commit(None, f"checkpoint {seed}")
    return mdl


def test_status_and_switch(tree: Mdl) -> None:
    assert "model.safetensors" not in tree.run("status").out
    (tree.repo / "config.json").write_text("changed\n")
    (tree.repo / "new.txt").write_text("new\n")
    out = tree.run("status").out
    assert "config.json" in out
    assert "new.txt" in out
    assert "model.safetensors" not in out


def test_same_size_and_time_is_noticed(tree: Mdl) -> None:
    """A file rewritten within one clock tick with the same length: the stat cache must not hide it."""
    file = tree.repo / "model.safetensors"
    info = file.stat()
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert "model.safetensors" in tree.run("status").out


def test_checkout_keeps_uncommitted_changes(tree: Mdl, tmp_path: Path) -> None:
    file = tree.repo / "model.safetensors"
    mine = b"precious work\n"
    file.write_bytes(mine)
    tree.run("checkout", "main~1", code=(USER, CONFLICT)).complains("model.safetensors")
    assert file.read_bytes() == mine
    tree.run("checkout", "main~1", "--force")
    assert_same(tree.checkout("main~1", tmp_path / "old"), tree.repo)


def test_checkout_keeps_untracked_files(tree: Mdl) -> None:
    """A file that the revision would overwrite but that was never committed is not overwritten either."""
    (tree.repo / "extra.txt").write_text("committed\n")
    tree.commit(None, "with extra")
    tree.run("checkout", "main~1")
    (tree.repo / "extra.txt").write_text("mine, never committed\n")
    tree.run("checkout", "main", code=(USER, CONFLICT)).complains("extra.txt")
    assert (tree.repo / "extra.txt").read_text() == "mine, never committed\n"


def test_checkout_into_a_folder_keeps_what_is_there(tree: Mdl, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("mine\n")
    tree.run("checkout", "main", "--to", out, code=(USER, CONFLICT)).complains("config.json")
    assert (out / "config.json").read_text() == "mine\n"
    tree.run("checkout", "main", "--to", out, "--force")
    assert (out / "config.json").read_bytes() == (tree.repo / "config.json").read_bytes()


def test_checkout_removes_what_the_revision_lacks(tree: Mdl, tmp_path: Path) -> None:
    (tree.repo / "extra.txt").write_text("committed\n")
    tree.commit(None, "with extra")
    tree.run("checkout", "main~1")
    assert not (tree.repo / "extra.txt").exists()
    tree.run("switch", "main")
    assert (tree.repo / "extra.txt").read_text() == "committed\n"


def test_switch_between_branches(tree: Mdl, tmp_path: Path) -> None:
    tree.run("switch", "-c", "dev")
    makers.write_small_checkpoint(tree.repo, 7)
    tree.commit(None, "on dev")
    assert tree.commit_id("dev~1") == tree.commit_id("main")
    tree.run("switch", "main")
    assert_same(tree.checkout("main", tmp_path / "main"), tree.repo)
    tree.run("switch", "dev")
    assert_same(tree.checkout("dev", tmp_path / "dev"), tree.repo)


def test_mdlignore(tree: Mdl, tmp_path: Path) -> None:
    (tree.repo / ".mdlignore").write_text("*.tmp\nlogs/\n!keep.tmp\n")
    (tree.repo / "logs").mkdir()
    for name in ("a.tmp", "keep.tmp", "logs/x.txt"):
        (tree.repo / name).write_text(name)
    tree.commit(None, "ignoring")
    names = set(files_of(tree.checkout("main", tmp_path / "out")))
    assert "keep.tmp" in names
    assert ".mdlignore" in names
    assert not names & {"a.tmp", "logs/x.txt"}
    assert "a.tmp" not in tree.run("status").out


def test_repository_is_found_from_below_and_by_environment(tree: Mdl, tmp_path: Path) -> None:
    tip = tree.commit_id("main")
    below = tree.run("--json", "log", "-n", "1", cwd=tree.repo / "notes", repo_flag=False)
    assert tip is not None
    assert tip in below.out
    assert tip in tree.run("log", "-n", "1", cwd=tmp_path, repo_flag=False, env={"MDL_REPO": str(tree.repo)}).out
    tree.run("log", cwd=tmp_path, repo_flag=False, code=(USER, NOT_FOUND)).complains()


def test_usage_errors(mdl: Mdl) -> None:
    mdl.run("no-such-verb", code=USAGE).complains()
    mdl.run("commit", "--no-such-flag", code=USAGE).complains()
    mdl.run("checkout", code=USAGE).complains()


def test_error_as_json(small: Mdl) -> None:
    result = small.run("--json", "show", "nope", code=NOT_FOUND)
    assert "nope" in result.err + result.out
    assert "panicked" not in result.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell: str, mdl: Mdl) -> None:
    assert "mdl" in mdl.run("completions", shell).out


def test_man(mdl: Mdl) -> None:
    out = mdl.run("man").out
    assert ".TH" in out
    assert "checkout" in out
