"""Other programs write to the work tree at any time: no change of theirs goes unseen.

What a command reports is on the disk.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support import disks, faults
from support.cli import CONFLICT, OK, USER, Mdl, assert_same, differences
from support.tensors import Tensor, write_safetensors

MIB = 1 << 20
SETTLED = 2.3
"""Seconds after which a file's state is remembered."""
_reason = faults.why_not()
needs_strace = pytest.mark.skipif(_reason is not None, reason=f"delays by strace: {_reason}")
NUMBERS = {"rename": 82, "unlink": 87, "renameat": 264, "unlinkat": 263, "renameat2": 316, "statx": 332}
"""x86-64."""
RENAMES = "rename,renameat,renameat2"


def model(path: Path, seed: int, mib: float = 0.25) -> Path:
    """A checkpoint that no coder can shrink."""
    bits = np.random.default_rng(seed).integers(0, 256, int(mib * MIB), dtype=np.uint8)
    write_safetensors(path, [Tensor.of("noise", bits)])
    return path


def two_branches(repo: Path, mib: float = 0.25) -> Mdl:
    """main and dev with different models, and a file that only main has; the work tree is main."""
    mdl = Mdl.init(repo)
    model(repo / "model.safetensors", 1, mib)
    model(repo / "main_only.safetensors", 3)
    mdl.commit(None, "main")
    mdl.run("switch", "-c", "dev")
    model(repo / "model.safetensors", 2, mib)
    (repo / "main_only.safetensors").unlink()
    model(repo / "dev_only.safetensors", 4, mib)
    mdl.commit(None, "dev")
    mdl.run("switch", "main")
    return mdl


@contextmanager
def delayed(
    argv: list[str], env: dict[str, str], path: Path, calls: str, seconds: float = 1.0, nth: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose system calls of these kinds are held up when they begin; entered while one names the path.

    With `nth` only that one of the calls on the path is.
    """
    kinds = ",".join(f"?{name}" for name in calls.split(","))
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={kinds}"]
    strace += ["-P", str(path)] if nth else []
    strace += ["-e", f"inject={kinds}:delay_enter={int(seconds * 1e6)}" + (f":when={nth}" if nth else "")]
    pipe = subprocess.PIPE
    process = subprocess.Popen([*strace, *argv], stdout=pipe, stderr=pipe, env=env)
    try:
        wait_in(process, {NUMBERS[name] for name in calls.split(",")}, path)
        yield process
    finally:
        process.wait(60)


def wait_in(process: subprocess.Popen[bytes], numbers: set[int], path: Path) -> None:
    """Until a thread of the traced command has been in one of these calls, naming the path, for a moment."""
    end, held = time.monotonic() + 60, 0
    while held < 5:
        assert process.poll() is None, f"it ended early: {process.communicate()}"
        assert time.monotonic() < end, "it never came to the call"
        under_way = list(calls_under_way(process.pid))
        named = [n for n, names in under_way if any(name == str(path) or name.endswith(f"/{path}") for name in names)]
        held = held + 1 if numbers.intersection(named) else 0
        time.sleep(0.01)


def calls_under_way(tracer: int) -> Iterator[tuple[int, list[str]]]:
    """System calls that threads of a traced command are in, and the texts that their arguments point at."""
    try:
        for child in Path(f"/proc/{tracer}/task/{tracer}/children").read_text().split():
            for task in Path(f"/proc/{child}/task").iterdir():
                number, *arguments = (task / "syscall").read_text().split()
                if number.isdigit():
                    yield int(number), [text_at(task / "mem", int(a, 16)) for a in arguments[:6]]
    except (OSError, ValueError):
        return


def text_at(memory: Path, address: int) -> str:
    try:
        with memory.open("rb", buffering=0) as file:
            file.seek(address)
            return file.read(512).split(b"\0")[0].decode(errors="replace")
    except (OSError, ValueError, OverflowError):
        return ""


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    out, err = process.communicate(timeout=60)
    assert b"panicked" not in err, err
    return process.returncode, (out + err).decode(errors="replace")


# --- what is written while a checkout replaces files -----------------------------------------------------------------


@pytest.mark.xdist_group("timing")
@needs_strace
def test_what_is_written_while_files_are_replaced_is_kept(tmp_path: Path) -> None:
    """In the last moment before the new file takes the name."""
    mdl = two_branches(tmp_path / "repo")
    target = mdl.repo / "model.safetensors"
    with delayed(mdl.argv("switch", "dev"), mdl.environment(), target, RENAMES) as process:
        model(tmp_path / "new", 77)
        target.write_bytes((tmp_path / "new").read_bytes())
        code, said = ended(process)
    assert target.read_bytes() == (tmp_path / "new").read_bytes(), f"what was written is gone: exit {code}: {said}"
    assert code == CONFLICT, said
    assert "model.safetensors" in said
    assert mdl.json("status")["branch"] == "main"
    changes = {f["path"]: f["change"] for f in mdl.json("status")["files"]}
    assert changes["model.safetensors"] == "modified"
    assert not [p.name for p in mdl.repo.iterdir() if p.name.startswith(".mdl-")]
    # Once it is somewhere else, the same command goes on.
    target.rename(tmp_path / "saved")
    mdl.run("switch", "dev")
    assert mdl.json("status")["clean"]


@pytest.mark.xdist_group("timing")
@needs_strace
def test_what_is_written_while_a_file_is_removed_is_kept(tmp_path: Path) -> None:
    mdl = two_branches(tmp_path / "repo")
    target = mdl.repo / "main_only.safetensors"
    with delayed(mdl.argv("switch", "dev"), mdl.environment(), target, "unlink,unlinkat,renameat2") as process:
        target.write_bytes(b"results")
        code, said = ended(process)
    assert target.exists(), f"what was written is gone: exit {code}: {said}"
    assert target.read_bytes() == b"results"
    assert code == CONFLICT, said
    assert mdl.json("status")["branch"] == "main"


@pytest.mark.xdist_group("timing")
@needs_strace
def test_a_file_that_appears_in_the_way_is_kept(tmp_path: Path) -> None:
    mdl = two_branches(tmp_path / "repo")
    target = mdl.repo / "dev_only.safetensors"
    with delayed(mdl.argv("switch", "dev"), mdl.environment(), target, RENAMES) as process:
        target.write_bytes(b"mine")
        code, said = ended(process)
    assert target.read_bytes() == b"mine", f"what was written is gone: exit {code}: {said}"
    assert code == CONFLICT, said


# --- writes through memory maps --------------------------------------------------------------------------------------


@contextmanager
def place_for(kind: str, tmp_path: Path) -> Iterator[Path]:
    if kind == "tmpfs":
        with disks.mounted(tmp_path / "memory", "-t", "tmpfs", "tmpfs") as at:
            yield at
    else:
        yield tmp_path


@pytest.mark.parametrize("kind", ["disk", "tmpfs"])
def test_writes_through_a_memory_map_are_seen(tmp_path: Path, kind: str) -> None:
    with place_for(kind, tmp_path) as root:
        mdl = two_branches(root / "repo")
        path = mdl.repo / "model.npy"
        values = np.lib.format.open_memmap(path, "w+", np.float32, (1024,))
        values[:] = 1
        time.sleep(SETTLED)
        first = mdl.commit(None, "ones")["commit"]
        assert mdl.json("status")["clean"]
        values[:] = 2
        assert not mdl.json("status")["clean"], "a write through the map is not seen"
        mdl.run("switch", "dev", code=USER).complains("model.npy")
        assert np.load(path)[0] == 2
        mdl.commit(None, "twos", "--step", "2")
        out = mdl.checkout("main", tmp_path / "out")
        assert np.load(out / "model.npy")[0] == 2
        assert np.load(mdl.checkout(first, tmp_path / "first") / "model.npy")[0] == 1
        del values


@pytest.mark.xdist_group("timing")
def test_a_file_that_is_written_through_a_map_while_it_is_read_is_not_committed(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "repo")
    values = np.lib.format.open_memmap(mdl.repo / "model.npy", "w+", np.float32, (16 * MIB,))
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            values[:] = n

    thread = threading.Thread(target=write)
    thread.start()
    try:
        time.sleep(SETTLED)
        mdl.run("commit", "-m", "torn", code=USER).complains("changed while")
    finally:
        stop.set()
        thread.join()
    mdl.commit(None, "whole")
    assert len(set(np.load(mdl.checkout("main", tmp_path / "out") / "model.npy").tolist())) == 1


# --- power cuts ------------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("disks")
@pytest.mark.parametrize("verb", ["switch", "checkout", "merge", "to", "clone"])
def test_what_was_checked_out_survives_a_power_cut(tmp_path: Path, verb: str) -> None:
    with disks.ext4(tmp_path, 256) as disk:
        mdl = two_branches(disk.root / "repo", 8)
        if verb == "merge":
            mdl.run("reset", "--hard", "dev~1")
        want = mdl.checkout("dev", tmp_path / "want")
        os.sync()
        where = "repo"
        if verb == "to":
            where = "out"
            mdl.run("checkout", "dev", "--to", disk.root / where)
        elif verb == "clone":
            where = "clone"
            mdl.run("clone", mdl.repo, disk.root / where, "--branch", "dev", repo_flag=False)
        else:
            mdl.run(verb, "dev")
        with disk.after_a_power_cut(tmp_path / "after") as root:
            assert differences(root / where, want) == []
            if verb != "to":
                found = Mdl(root / where)
                assert found.json("status")["clean"]
                assert found.commit_id("HEAD") == mdl.commit_id("dev")
                found.fsck()


# --- two commands at a time ------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("timing")
@needs_strace
def test_a_commit_beside_a_switch_commits_its_own_branch(tmp_path: Path) -> None:
    mdl = two_branches(tmp_path / "repo")
    want = (mdl.repo / "model.safetensors").read_bytes()
    (mdl.repo / "notes.txt").write_text("new\n")
    argv = mdl.argv("commit", "-m", "notes")
    with delayed(argv, mdl.environment(), mdl.repo / "model.safetensors", "statx", 2.5, nth=3) as commit:
        switched = mdl.run("switch", "dev", code=(OK, CONFLICT))
        code, said = ended(commit)
    if code == OK:
        out = mdl.checkout("main", tmp_path / "out")
        assert (out / "model.safetensors").read_bytes() == want, "main has the files of dev"
    else:
        assert code == CONFLICT, said
    assert "waiting for" in switched.err


@pytest.mark.xdist_group("timing")
@needs_strace
def test_a_branch_that_head_is_going_to_is_not_deleted(tmp_path: Path) -> None:
    mdl = two_branches(tmp_path / "repo")
    mdl.run("branch", "side", "main")
    with delayed(mdl.argv("switch", "side"), mdl.environment(), mdl.store / "HEAD", RENAMES) as switch:
        deleted = mdl.run("branch", "-d", "side", code=(OK, USER, CONFLICT))
        code, said = ended(switch)
    assert mdl.commit_id("HEAD") is not None, f"HEAD is on nothing: {deleted}; {said}"
    assert (code == OK) != (deleted.code == OK)


# --- names -----------------------------------------------------------------------------------------------------------


def test_what_a_removal_left_aside_is_not_committed(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "repo")
    (mdl.repo / ".mdl-removing-checkpoint-1").mkdir()
    model(mdl.repo / ".mdl-removing-checkpoint-1" / "model.safetensors", 1)
    model(mdl.repo / ".mdl-removing-last.safetensors", 2)
    model(mdl.repo / "model.safetensors", 3)
    mdl.commit(None, "one")
    assert [f["path"] for f in mdl.json("ls", "main")["files"]] == ["model.safetensors"]


def test_names_that_differ_in_case_only_do_not_overwrite_each_other(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "repo")
    model(mdl.repo / "Model.safetensors", 1)
    model(mdl.repo / "model.safetensors", 2)
    mdl.commit(None, "both")
    with disks.ext4(tmp_path, 64, "-O", "casefold") as disk:
        out = disk.root / "out"
        out.mkdir()
        disks.must("chattr", "+F", out)
        done = mdl.run("checkout", "main", "--to", out, code=(OK, USER, CONFLICT))
        assert done.code != OK, "one of the two is gone, and the checkout reports success"
        done.complains("model.safetensors")
        assert (out / "Model.safetensors").read_bytes() == (mdl.repo / "Model.safetensors").read_bytes()


# --- watch -----------------------------------------------------------------------------------------------------------


def checkpoint(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True)
    model(folder / "model.safetensors", seed)
    return folder


def test_a_repository_in_an_original_is_not_removed(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "repo")
    source = tmp_path / "source"
    for step in (1, 2, 3):
        checkpoint(source / f"checkpoint-{step}", step)
    inner = Mdl.init(source / "checkpoint-1" / "analysis")
    (tmp_path / "inner").mkdir()
    model(tmp_path / "inner" / "x.safetensors", 9)
    inner.commit(tmp_path / "inner", "history")
    (source / "checkpoint-2" / ".mdl-notes").write_text("mine\n")
    done = mdl.run("--json", "watch", source, "--once", "--settle", "0", "--remove")
    assert inner.commit_id("main") is not None, f"a repository is gone\n{done}"
    assert (source / "checkpoint-2" / ".mdl-notes").read_text() == "mine\n"
    assert (source / "checkpoint-1" / "model.safetensors").exists()
    assert '"kept"' in done.out


@pytest.mark.xdist_group("timing")
@needs_strace
def test_what_comes_into_an_original_while_it_is_removed_is_kept(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "repo")
    source = tmp_path / "source"
    for step in (1, 2):
        checkpoint(source / f"checkpoint-{step}", step)
    argv = mdl.argv("watch", source, "--once", "--settle", "0", "--remove")
    aside = source / ".mdl-removing-checkpoint-1"
    with delayed(argv, mdl.environment(), Path("model.safetensors"), "unlink,unlinkat") as process:
        (aside / "late.txt").write_text("late\n")
        code, said = ended(process)
    assert code == OK, said
    late = list(source.rglob("late.txt"))
    assert [p.read_text() for p in late] == ["late\n"], f"it is gone: {said}"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_that_is_told_to_end_takes_what_settles(tmp_path: Path, how: int) -> None:
    mdl = Mdl.init(tmp_path / "repo")
    source = tmp_path / "source"
    checkpoint(source / "checkpoint-1", 1)
    argv = mdl.argv("watch", source, "--settle", "1.5", "--interval", "0.1")
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, env=mdl.environment())
    end = time.monotonic() + 60
    while mdl.commit_id("main") is None and time.monotonic() < end:
        time.sleep(0.05)
    checkpoint(source / "checkpoint-2", 2)
    time.sleep(0.3)
    process.send_signal(how)
    code, said = ended(process)
    assert code == OK, said
    assert "checkpoint-2" in mdl.run("log", "--oneline").out, said
    assert_same(mdl.checkout("main", tmp_path / "out"), source / "checkpoint-2")


def test_a_watch_that_is_told_to_end_names_what_it_leaves(tmp_path: Path) -> None:
    mdl = Mdl.init(tmp_path / "repo")
    source = tmp_path / "source"
    for step in (1, 2):
        checkpoint(source / f"checkpoint-{step}", step)
    began = tmp_path / "began"
    argv = mdl.argv("watch", source, "--settle", "0.2", "--interval", "0.1", "--policy", "lattice")
    argv += ["--eval", f"touch {began}; sleep 0.5; echo 1"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, env=mdl.environment())
    end = time.monotonic() + 60
    while not began.exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == OK, said
    assert "checkpoint-2 is left" in said
    assert "--once" in said
