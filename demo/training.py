"""Demo of mdl in a training loop: a GPT is trained, killed, resumed and branched from; then its log. Needs torch."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mdl
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.cli import Mdl, binary

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "train_gpt.py"
#: Versions after which the program is killed.
LIFE = 3


class Interrupted(Exception):
    """Training did not end as it should have."""


def say(text: str) -> None:
    print(f"   {text}", flush=True)


def train(folder: Path, *args: str, kill_after: int | None = None) -> None:
    """Runs the example in front of the reader; ends it by SIGKILL somewhere behind so many versions."""
    argv = [sys.executable, str(EXAMPLE), str(folder), *args]
    print(f"\n   $ python examples/train_gpt.py {folder.name} {' '.join(args)}")
    versions = 0
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            say(line.rstrip())
            versions += line.startswith("step")
            if versions == kill_after:
                time.sleep(0.3)
                process.send_signal(signal.SIGKILL)
                break
    wanted = -signal.SIGKILL if kill_after is not None else 0
    if process.returncode != wanted:
        raise Interrupted(f"it ended with {process.returncode}, not {wanted}")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in a)


def show(root: Path) -> None:
    print("\n## A training loop: commits in the background, a kill, an exact resume, a branch")
    folder, twin = root / "gpt", root / "never-killed"
    train(folder, "--steps", "300", kill_after=LIFE)
    say(f"Killed with SIGKILL after {LIFE} versions. The same command goes on:")
    train(folder, "--steps", "300")
    repo = mdl.Repo.open(folder)
    middle = repo.show("main@step=200")
    say(f"{middle.short_id} of step 200 is {middle.resume}: {middle.tensors} tensors, {middle.ratio:.2f}x smaller.")
    say("From there another run, with a tenth of the rate:")
    train(folder, "--from", "main@step=200", "--branch", "slow", "--lr", "2e-4", "--steps", "300")
    say("And one that is never killed, to compare with:")
    train(twin, "--steps", "300")
    killed, straight = repo.load("main")["model"], mdl.Repo.open(twin).load("main")["model"]
    if not same(killed, straight):
        raise Interrupted("the run that was killed ended with other weights")
    say("Both ended with the same weights, bit for bit.")
    print(f"\n   $ mdl --repo {folder.name} log --graph --all")
    for line in Mdl(folder).run("log", "--graph", "--all").out.rstrip().splitlines():
        say(line[:150])


def main() -> int:
    if not binary().is_file():
        raise SystemExit(f"{binary()} is missing; run `make build`")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mdl-demo-") as root:
        try:
            show(Path(root))
        except (AssertionError, Interrupted, OSError, subprocess.SubprocessError) as error:
            print(f"\nFAILED: {error}", file=sys.stderr)
            return 1
    print(f"Everything matched. {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
