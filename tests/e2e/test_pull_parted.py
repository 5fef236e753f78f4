"""Two clones that both pushed come together in at most two commands, and the refused push names them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from support import makers
from support.cli import CONFLICT, OK, USER, Mdl, assert_same


def commit(mdl: Mdl, seed: int, message: str) -> None:
    makers.write_small_checkpoint(mdl.repo, seed, layers=2, width=32)
    (mdl.repo / "config.json").write_text("{}\n")
    (mdl.repo / "notes" / "run.txt").unlink()
    (mdl.repo / f"{message}.txt").write_text(message)
    mdl.commit(None, message, "--metric", f"loss={seed}")


def two_sides(tmp_path: Path) -> tuple[Mdl, Mdl, Mdl]:
    """A bare repository and two clones of it, each with a version of its own; that of the first is pushed."""
    origin = Mdl.init(tmp_path / "origin", "--bare")
    one = Mdl.init(tmp_path / "one")
    commit(one, 1, "base")
    one.run("remote", "add", "origin", str(origin.repo))
    one.run("push", "origin", "main")
    two = Mdl(tmp_path / "two")
    two.run("clone", str(origin.repo), str(two.repo), repo_flag=False)
    commit(one, 2, "of one")
    commit(two, 3, "of two")
    one.run("push")
    return origin, one, two


def test_the_refused_push_names_two_commands_that_bring_both_together(tmp_path: Path) -> None:
    _, one, two = two_sides(tmp_path)
    refused = two.run("push", code=CONFLICT)
    refused.complains("would not move forward", "mdl pull --rebase", "mdl push")
    two.run("pull", "--rebase")
    two.run("push")
    assert [entry["message"].strip() for entry in two.log()] == ["of two", "of one", "base"]
    assert two.log()[0]["metrics"] == {"loss": 3.0}, "its weights are those that were measured"
    one.run("pull")
    assert one.commit_id("HEAD") == two.commit_id("HEAD")
    one.fsck()
    assert_same(one.checkout("HEAD", tmp_path / "a"), two.checkout("HEAD", tmp_path / "b"))


def test_one_version_of_both_sides_is_the_other_way(tmp_path: Path) -> None:
    _, one, two = two_sides(tmp_path)
    two.run("pull", "--merge", "average")
    two.run("push")
    assert len(two.log()[0]["parents"]) == 2
    one.run("pull")
    assert_same(one.checkout("HEAD", tmp_path / "a"), two.checkout("HEAD", tmp_path / "b"))


def test_a_pull_of_two_sides_says_which_ways_there_are(tmp_path: Path) -> None:
    _, _, two = two_sides(tmp_path)
    before = two.commit_id("HEAD")
    refused = two.run("pull", code=CONFLICT)
    refused.complains("origin/main", "parted", "mdl pull --rebase", "mdl pull --merge")
    assert two.commit_id("HEAD") == before
    assert two.commit_id("origin/main") != before, "what is there was fetched all the same"
    two.run("config", "pull.rebase", "true")
    assert two.run("pull", "--no-rebase", code=CONFLICT)
    done = two.json("pull")
    assert (done["result"], len(done["replayed"]), done["remote"]) == ("done", 1, "origin")
    assert two.json("pull")["result"] == "up_to_date"


def test_a_pull_that_stops_is_gone_on_with(tmp_path: Path) -> None:
    _, one, two = two_sides(tmp_path)
    for mdl, text in ((one, "one"), (two, "two")):
        (mdl.repo / "config.json").write_text(text)
        mdl.commit(None, f"config of {text}")
    one.run("push")
    stopped = two.json("pull", "--rebase", code=CONFLICT)
    assert stopped["result"] == "stopped"
    assert stopped["conflicts"] == [{"path": "config.json", "reason": "both-changed", "tensors": []}]
    status = two.run("status")
    status.names("rebase", "config.json", "--continue", "--abort")
    for args in (("pull",), ("switch", "-c", "x"), ("commit", "-m", "x"), ("reset", "--hard"), ("rebase", "main")):
        two.run(*args, code=1).complains("a rebase is in progress", "mdl rebase --abort")
    assert [branch["name"] for branch in two.json("branch")["branches"] if not branch["remote"]] == ["main"]
    (two.repo / "config.json").write_text("both")
    two.run("rebase", "--continue")
    two.run("push")
    assert (two.repo / "config.json").read_text() == "both"
    assert [entry["message"].strip() for entry in two.log()][:3] == ["config of two", "of two", "config of one"]


def test_pulls_of_one_work_tree_at_once_wait_or_are_refused(tmp_path: Path) -> None:
    _, _, two = two_sides(tmp_path)
    argv = two.argv("pull", "--rebase")
    running = [subprocess.Popen(argv, env=two.environment(), stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [(process.communicate(timeout=300)[1], process.returncode) for process in running]
    # One that receives the same bytes as another is refused.
    assert all(code in (OK, USER, CONFLICT) for _, code in ended), ended
    assert OK in [code for _, code in ended]
    two.run("pull", "--rebase")
    assert [entry["message"].strip() for entry in two.log()] == ["of two", "of one", "base"]
    assert two.json("status")["clean"]
    two.fsck()


@pytest.mark.parametrize("rounds", [3])
def test_both_sides_pull_and_push_at_once_until_both_are_in(tmp_path: Path, rounds: int) -> None:
    """Processes of two clones beside each other: whoever is refused pulls again, and no version is lost."""
    origin, one, two = two_sides(tmp_path)
    both = '"$0" --repo "$1" pull --rebase -q && "$0" --repo "$1" push -q && exit'
    script = f"for n in 1 2 3 4 5 6 7 8 9 10; do {both}; done; exit 9"
    names = {"base", "of one", "of two"}
    for n in range(rounds):
        running = []
        for mdl, name in ((one, "one"), (two, "two")):
            message = f"round {n} of {name}"
            names.add(message)
            commit(mdl, 10 * n + len(name), message)
            program, *_ = mdl.argv()
            argv = ["sh", "-c", script, program, str(mdl.repo)]
            running.append(subprocess.Popen(argv, env=mdl.environment(), stderr=subprocess.PIPE, text=True))
        for process in running:
            _, err = process.communicate(timeout=300)
            assert process.returncode == OK, err
            assert not re.search("panicked|damaged", err), err
    for mdl in (one, two):
        mdl.run("pull", "--rebase")
        assert {entry["message"].strip() for entry in mdl.log()} == names
        mdl.fsck()
    assert one.commit_id("HEAD") == two.commit_id("HEAD")
    origin.fsck()
