"""Commits the checkpoints of a stored uncompressed run one after the other: minutes instead of a live run's hour.

    python -m quality.replay TASK ORDER POLICY [--moments] [OPTIONS OF mdl commit]

Nothing is restored, so it shows ratios and evaluations only; what they cost a run is for `live` to say.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from quality.live import HOME, Evaluator, Repository, fresh
from quality.tasks import TASKS
from quality.trainer import MODEL, OPTIMIZER, grads_file, step_dir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("order", type=int)
    parser.add_argument("policy", help="name or TOML file")
    parser.add_argument("--moments", action="store_true", help="commit optimizer.safetensors too")
    parser.add_argument("--stop", type=int, help="last step")
    args, options = parser.parse_known_args()
    task = TASKS[args.task]()
    run = HOME / "runs" / f"{args.task}-{args.order}"
    home = fresh(HOME / "replay" / f"{args.task}-{args.order}-{Path(args.policy).stem}")
    home.mkdir(parents=True)
    repo = Repository(home / "repo")
    raw = 0
    with Evaluator(task, "loss", home / "eval") as evaluator:
        for step in range(task.start + task.every, (args.stop or task.steps) + 1, task.every):
            staged = fresh(home / "staged")
            staged.mkdir()
            for file in (MODEL, OPTIMIZER) if args.moments else (MODEL,):
                shutil.copyfile(step_dir(run, step) / file, staged / file)
            before, evaluated = repo.packs(), evaluator.seconds
            judge = ["--eval", evaluator.command, "--grads", str(grads_file(run, step))]
            report = repo.run("commit", str(staged), "--step", str(step), "--policy", args.policy, *judge, *options)
            size, added = sum(file.stat().st_size for file in staged.iterdir()), repo.packs() - before
            raw += size
            quality = report["quality"]
            print(
                f"{step:5d} {size / added:6.1f}x {added:8,d} B ({report['stored_bytes']:,d} in tensors)"
                f"  {quality['configuration']}: {quality['measured'] or 0:.5f}, exact {quality['exact'] or 0:.5f},"
                f" limit {quality['limit'] or 0:.5f}; {quality['evaluations']} evaluations,"
                f" {evaluator.seconds - evaluated:.1f} s",
                flush=True,
            )
    print(f"overall {raw / repo.packs():.2f}x")


if __name__ == "__main__":
    main()
