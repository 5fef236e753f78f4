"""`mdl watch DIR -- CMD`: real training programs beside a watch; their signals, their ends, and what they leave."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support import makers
from support.cli import OK, USAGE, USER, Mdl, assert_same
from support.processes import until

QUICK = ("--interval", "0.05", "--settle", "0.3")
PATIENCE = 60.0

TRAINER = """
import os, shutil, signal, sys, time
made, out, log = sys.argv[1:4]
def say(*words):
    with open(log, "a") as file:
        print(*words, file=file, flush=True)
def save(step):
    os.makedirs(out, exist_ok=True)
    shutil.copytree(f"{made}/{step}", f"{out}/tmp-checkpoint-{step}")
    os.rename(f"{out}/tmp-checkpoint-{step}", f"{out}/checkpoint-{step}")
"""
"""What every trainer here begins with: it saves checkpoints that were made before."""


def as_from_a_terminal() -> None:
    """Ends what a job in the background ignores, and its children would."""
    for how in (signal.SIGINT, signal.SIGHUP):
        signal.signal(how, signal.SIG_DFL)


class Training:
    """A place to train in: checkpoints to save, a directory that the trainer makes, and what it said."""

    def __init__(self, mdl: Mdl, root: Path) -> None:
        self.mdl, self.out, self.log = mdl, root / "out", root / "log"
        self.made, self.script = root / "made", root / "train.py"
        for step in (1, 2, 3):
            makers.write_small_checkpoint(self.made / str(step), step)
        self.running: list[subprocess.Popen[bytes]] = []

    def command(self, body: str) -> list[str]:
        self.script.write_text(TRAINER + body)
        return [sys.executable, str(self.script), str(self.made), str(self.out), str(self.log)]

    def argv(self, body: str, *options: str, flags: Sequence[str] = ()) -> list[str]:
        return self.mdl.argv(*flags, "watch", self.out, *QUICK, *options, "--", *self.command(body))

    def start(self, body: str, *options: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        argv, env = self.argv(body, *options), self.mdl.environment()
        process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, env=env, preexec_fn=as_from_a_terminal)
        self.running.append(process)
        return process

    def said(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def committed(self) -> list[str]:
        if self.mdl.commit_id("main") is None:
            return []
        return [entry["meta"]["source"] for entry in reversed(self.mdl.log("main"))]


@pytest.fixture
def training(mdl: Mdl, tmp_path: Path) -> Iterator[Training]:
    training = Training(mdl, tmp_path)
    yield training
    for process in training.running:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    assert b"panicked" not in err, err
    return process.returncode, out.decode(), err.decode()


def test_it_runs_the_trainer_and_takes_what_it_leaves(training: Training, tmp_path: Path) -> None:
    code, out, err = ended(training.start("save(1); save(2); print('loss', 0.5); save(3)\n"))
    assert code == OK, err
    # Standard output is the trainer's alone.
    assert out == "loss 0.5\n"
    assert "checkpoint-3" in err
    assert training.committed() == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert_same(training.out / "checkpoint-3", training.mdl.checkout("main", tmp_path / "back"))


def test_json_has_standard_output_and_the_trainer_standard_error(training: Training) -> None:
    argv = training.argv("save(1); print('loss', 0.5)\n", flags=["--json"])
    done = subprocess.run(argv, capture_output=True, text=True, env=training.mdl.environment(), check=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["event"] for e in events] == ["committed"]
    assert "loss 0.5" in done.stderr


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137), ("1 / 0", 1)])
def test_what_a_run_that_fails_left_is_kept(training: Training, end: str, code: int) -> None:
    training.out.mkdir()
    torn = "open(out + '/step_9.safetensors', 'wb').write(open(made + '/2/model.safetensors', 'rb').read()[:-9])"
    got, _, err = ended(training.start(f"save(1); save(2); {torn}; {end}\n"))
    assert got == code, err
    assert training.committed() == ["checkpoint-1", "checkpoint-2"]
    assert f"ended with exit code {code}" in err
    assert "step_9.safetensors: not committed" in err


def test_what_cannot_be_committed_fails_a_run_that_did_not(training: Training) -> None:
    training.out.mkdir()
    torn = "open(out + '/step_9.safetensors', 'wb').write(open(made + '/2/model.safetensors', 'rb').read()[:-9])"
    code, _, err = ended(training.start(f"save(1); {torn}\n"))
    assert code == USER, err
    assert "1 checkpoint not committed: step_9.safetensors" in err
    assert training.committed() == ["checkpoint-1"]


SAVES_WHEN_ASKED = """
def asked(number, frame):
    say("got", number)
    save(2)
    sys.exit(0 if number != signal.SIGINT else 130)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, asked)
signal.signal(signal.SIGUSR1, lambda number, frame: say("got", number))
save(1)
say("ready")
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)], ids=["TERM", "HUP", "INT"]
)
def test_signals_reach_the_trainer_and_what_it_saves_then_is_kept(training: Training, how: int, code: int) -> None:
    process = training.start(SAVES_WHEN_ASKED)
    assert until(lambda: "ready" in training.said())
    process.send_signal(signal.SIGUSR1)
    assert until(lambda: f"got {int(signal.SIGUSR1)}" in training.said())
    process.send_signal(how)
    got, _, err = ended(process)
    assert got == code, err
    assert training.said() == ["ready", f"got {int(signal.SIGUSR1)}", f"got {int(how)}"]
    assert training.committed() == ["checkpoint-1", "checkpoint-2"]


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice, as `timeout` does"])
def test_a_signal_to_the_whole_group_keeps_what_the_command_left(mdl: Mdl, tmp_path: Path, times: int) -> None:
    """scancel, systemd and `timeout` signal all processes: the command dies of it at once, and the watch does not."""
    for n in range(8):
        training = Training(mdl, tmp_path / str(n))
        argv = training.argv(f"save({n % 3 + 1})\nsay('ready')\ntime.sleep(60)\n", "--branch", f"b{n}")
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=mdl.environment(), start_new_session=True
        )
        assert until(lambda: "ready" in training.said())  # noqa: B023
        for _ in range(times):
            os.killpg(process.pid, signal.SIGTERM)
        code, _, err = ended(process)
        assert code == 128 + signal.SIGTERM, err
        assert [e["meta"]["source"] for e in mdl.log(f"b{n}")] == [f"checkpoint-{n % 3 + 1}"]


def test_a_second_signal_after_the_commands_end_ends_at_once(training: Training) -> None:
    training.out.mkdir()
    command = training.command("shutil.copy(made + '/2/model.safetensors', out + '/step_2.safetensors')\n")
    argv = training.mdl.argv("watch", training.out, "--interval", "0.05", "--settle", "60", "--", *command)
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=training.mdl.environment())
    training.running.append(process)
    assert process.stderr is not None
    assert any(b"ending once all is settled" in line for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) == -signal.SIGTERM


def test_a_parent_that_ignores_its_children_does_no_harm(training: Training) -> None:
    process = subprocess.Popen(
        training.argv("save(1); sys.exit(7)\n"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=training.mdl.environment(),
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        restore_signals=False,
    )
    training.running.append(process)
    code, _, err = ended(process)
    assert code == 7, err
    assert training.committed() == ["checkpoint-1"]


def test_originals_beyond_those_to_keep_go_at_the_end_too(training: Training) -> None:
    code, _, err = ended(training.start("save(1); save(2); save(3)\n", "--remove", "--keep", "1"))
    assert code == OK, err
    assert training.committed() == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert sorted(p.name for p in training.out.iterdir()) == ["checkpoint-3"]


def test_a_second_signal_reaches_the_trainer_too(training: Training) -> None:
    """Trainers save at the first Ctrl-C and leave at the second."""
    body = """
count = []
def asked(number, frame):
    count.append(number)
    say("got", len(count))
    if len(count) == 2:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, asked)
save(1)
say("ready")
while True:
    time.sleep(0.05)
"""
    process = training.start(body)
    assert until(lambda: "ready" in training.said())
    process.send_signal(signal.SIGINT)
    assert until(lambda: "got 1" in training.said())
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    assert training.committed() == ["checkpoint-1"]


@pytest.mark.parametrize("session", ["", "os.setsid()\n"], ids=["of the terminal", "of its own"])
def test_ctrl_c_at_a_terminal_reaches_the_trainer_once(training: Training, session: str) -> None:
    """The terminal sends it to both: a second one from us would cut the trainer's clean end short. One that has left
    the terminal's session has it from us alone."""
    argv = training.argv(session + SAVES_WHEN_ASKED.replace("sys.exit", "time.sleep(0.5); sys.exit"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(argv[0], argv, training.mdl.environment())
    assert until(lambda: "ready" in training.said())
    os.write(terminal, b"\x03")
    status = 0
    for _ in range(int(PATIENCE / 0.05)):
        try:
            os.read(terminal, 1 << 16)
        except OSError:
            break
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert training.said() == ["ready", f"got {int(signal.SIGINT)}"]
    assert training.committed() == ["checkpoint-1", "checkpoint-2"]


def test_what_nohup_ignores_the_trainer_ignores_too(training: Training) -> None:
    body = "save(1)\nsay('hup is', signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)\n"
    argv = ["nohup", *training.argv(body)]
    subprocess.run(argv, capture_output=True, env=training.mdl.environment(), check=True, timeout=PATIENCE)
    assert training.said() == ["hup is True"]
    assert training.committed() == ["checkpoint-1"]


@pytest.mark.parametrize(("what", "code"), [("no-such-program", 127), ("not-a-program", 126)])
def test_a_command_that_cannot_be_started(training: Training, tmp_path: Path, what: str, code: int) -> None:
    (tmp_path / "not-a-program").write_text("data\n")
    done = training.mdl.run("watch", training.out, "--", tmp_path / what, code=code)
    done.complains("cannot start", what)
    training.mdl.run("watch", training.out, "--once", "--", "true", code=USAGE)
    # Nothing is run where nothing could be kept.
    training.mdl.run("watch", training.out, "--policy", "nobody", "--", "touch", tmp_path / "ran", code=3)
    assert not (tmp_path / "ran").exists()


def test_a_run_that_saves_nothing_says_so(training: Training) -> None:
    code, _, err = ended(training.start("pass\n"))
    assert code == OK
    assert "nothing is committed" in err


def test_children_that_are_left_behind_are_not_waited_for(training: Training) -> None:
    """They hold the standard output that the trainer had."""
    body = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
say(child.pid)
save(1)
"""
    start = time.monotonic()
    process = training.start(body)
    try:
        assert process.wait(PATIENCE) == OK
        assert time.monotonic() - start < PATIENCE / 2
        assert training.committed() == ["checkpoint-1"]
        (child,) = training.said()
        assert Path(f"/proc/{child}").exists(), "it was not killed either"
    finally:
        for pid in training.said():
            os.kill(int(pid), signal.SIGKILL)


def test_the_trainer_outlives_a_watch_that_cannot_work(training: Training) -> None:
    """The repository goes away while it trains, and comes back: nothing is lost, and a run without it exits 1."""
    body = """
save(1)
say("ready")
while not os.path.exists(made + "/go"):
    time.sleep(0.02)
save(2)
say("done")
"""
    away = training.mdl.repo.with_name("away")
    process = training.start(body)
    assert until(lambda: training.committed() == ["checkpoint-1"])
    training.mdl.repo.rename(away)
    (training.made / "go").touch()
    code, _, err = ended(process)
    away.rename(training.mdl.repo)
    assert training.said() == ["ready", "done"]
    assert code == USER, err
    assert "checkpoint-2" in err
    training.mdl.run("watch", training.out, "--once", *QUICK)
    assert training.committed() == ["checkpoint-1", "checkpoint-2"]


def test_a_directory_that_is_a_file_is_said_and_the_trainer_runs_on(training: Training) -> None:
    training.out.write_text("no directory\n")
    code, _, err = ended(training.start("time.sleep(0.5); say('done')\n"))
    assert training.said() == ["done"]
    assert code != OK
    assert err.count("cannot list") == 2, "said once meanwhile and once at the end"


def test_a_closed_standard_output_costs_no_checkpoint(training: Training) -> None:
    argv = training.argv("save(1); time.sleep(0.6); save(2); say('done')\n", flags=["--json"])
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=training.mdl.environment())
    assert process.stdout is not None
    process.stdout.close()
    process.wait(PATIENCE)
    assert training.said() == ["done"]
    assert training.committed() == ["checkpoint-1", "checkpoint-2"]


def test_a_policy_is_kept_to_the_end(training: Training) -> None:
    options = ("--policy", "lattice", "--eval", "echo 1")
    code, _, err = ended(training.start("save(1); save(2); save(3); sys.exit(5)\n", *options))
    assert code == 5, err
    assert training.committed() == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert {e["quality"]["family"] for e in training.mdl.log("main")} == {"lattice"}


def test_originals_go_as_without_a_command(training: Training) -> None:
    body = "save(1); save(2); save(3); say('ready')\nwhile os.path.exists(out + '/checkpoint-1'): time.sleep(0.05)\n"
    code, _, err = ended(training.start(body, "--remove", "--keep", "1"))
    assert code == OK, err
    assert training.committed() == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    assert (training.out / "checkpoint-3").is_dir()
