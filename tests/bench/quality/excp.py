"""ExCP's joint pruning of Adam's moments (arXiv 2406.11257) under restores: a study of bytes, final loss and our gate.

    MDL_BIN=... python -m quality.excp 0.5,1,2,4,inf [--seconds zero] [--alpha 5e-5] [--order 0]

with tests/bench on PYTHONPATH, after the uncompressed runs. Weights go through `mdl commit` with the default policy;
five restores give them back with moments pruned as in ExCP's code (github.com/Gaffey/ExCP): kept are those of a matrix
where |m| > beta * mean |m| and the weight's change is above min(2.5, alpha / sqrt(mean v)) of its median, at the
nearest of 15 k-means centres. v is `zero` where pruned, as ExCP has it, or rows times columns (`factored`); `exact`
prunes nothing: what to compare with. Bytes of weights are those of the packs. Those of moments are an estimate, no
bitstream: order-0 entropy of pruned and 15 levels (v: where m is kept, given m's level if that is less), tables,
centres, factors of a byte, moments of one axis as they are; no container. `refused`: after how many restores the loss
50 steps on was above that with the exact moments by more than the gate allowed the weights.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quality.live import HOME, KILLS, SYSTEMS, Evaluator, Repository, began_from, fresh, kill_points, stored_run, write
from quality.tasks import TASKS
from quality.trainer import MODEL, OPTIMIZER, Judge, Trainer

State = dict[str, Tensor]
CENTRES, M, V = 15, ".exp_avg", ".exp_avg_sq"


def cluster(values: Tensor) -> tuple[Tensor, Tensor]:
    """Labels and centres: Lloyd's iteration on the sorted values, 25 times, from quantiles."""
    ordered = values.double().sort().values
    sums = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)])
    centres = ordered[((torch.arange(CENTRES) + 0.5) / CENTRES * len(ordered)).long()]
    for _ in range(25):
        inner = torch.searchsorted(ordered, (centres[1:] + centres[:-1]) / 2)
        cuts = torch.cat([inner.new_tensor([0]), inner, inner.new_tensor([len(ordered)])])
        counts = cuts.diff()
        centres = torch.where(counts > 0, sums[cuts].diff() / counts.clamp_min(1), centres)
    return torch.bucketize(values.double(), (centres[1:] + centres[:-1]) / 2), centres.float()


def bits(symbols: Tensor) -> float:
    """Order-0 entropy, and half a logarithm of the length for each entry of the table."""
    counts, n = symbols.unique(return_counts=True)[1].double(), max(1, symbols.numel())
    return float(-(counts * (counts / n).log2()).sum()) + (len(counts) - 1) / 2 * math.log2(n)


def factored(v: Tensor) -> Tensor:
    """Rows times columns, their factors in sixteenths of an octave, at most 8 octaves below the largest."""
    levels = [(factor.log2() * 16).round() for factor in (v.mean(1, True), v.mean(0, True) / v.mean())]
    rows, columns = [(level.clamp_min(level.max() - 128) / 16).exp2() for level in levels]
    return rows * columns


def shrink(state: State, change: State, alpha: float, beta: float, seconds: str) -> tuple[State, dict[str, float]]:
    """The moments that a restore gives back, their bytes, and the part of them that is kept."""
    out, size, kept, count = dict(state), {"m": 0.0, "v": 0.0, "rest": 0.0}, 0, 0
    for name in (key.removesuffix(M) for key in state if key.endswith(M)):
        m, v, moved = state[name + M], state[name + V], change[name].abs()
        if m.dim() < 2:
            size["rest"] += 8 * m.numel()
            continue
        least = moved.median() * min(2.5, alpha / v.mean().sqrt().item())
        keep = (m.abs() > beta * m.abs().mean()) & (moved > least)
        kept, count = kept + int(keep.sum()), count + m.numel()
        symbols = torch.zeros_like(m, dtype=torch.long)
        out[name + M], out[name + V] = torch.zeros_like(m), torch.zeros_like(v)
        if keep.any():
            labels, centres = cluster(m[keep])
            out[name + M][keep], symbols[keep] = centres[labels], labels + 1
            size["m"] += 4 * CENTRES
        size["m"] += bits(symbols) / 8
        if seconds == "factored":
            out[name + V] = factored(v)
            size["v"] += sum(v.shape) + 8
        elif keep.any():
            levels, centres = cluster(v[keep])
            out[name + V][keep] = centres[levels]
            size["v"] += 4 * CENTRES + min(bits(levels), sum(bits(levels[labels == k]) for k in range(CENTRES))) / 8
    return out, {**size, "kept": kept / count}


def study(order: int, alpha: float, beta: float, seconds: str) -> dict[str, Any]:
    """A run as `live` makes it with the default policy, but that its restores give back pruned moments."""
    task = TASKS["gpt"]()
    home = fresh(HOME / "excp" / f"gpt-{order}-{seconds}-beta{beta:g}-alpha{alpha:g}")
    before = load_file(began_from(task, order, home / "since") / MODEL)
    repo, judge, stored = Repository(home / "repo"), Judge(task), stored_run(task, order)
    policy = repo.policy(SYSTEMS["lossy"].policy, 0, home / "policy.toml")
    exact, staged, restored, grads = (home / name for name in ("exact", "staged", "restored", "grads.safetensors"))
    run = Trainer.load(task, order, home / "since", home / "since")
    resumed, due, rows, excess = None, None, [], []  # due: loss with the exact moments, what ours may be above it
    with Evaluator(task, "loss", home / "eval") as evaluator:
        for step in range(task.start + task.every, task.steps + 1, task.every):
            run.advance(step)
            run.save(exact, grads)
            fresh(staged).mkdir()
            shutil.copyfile(exact / MODEL, staged / MODEL)
            options = ["--policy", str(policy), "--eval", evaluator.command, "--lower-is-better", "--grads", str(grads)]
            options += ["--resumed-from", resumed] if resumed else [] if rows else ["--since", str(home / "since")]
            report = repo.run("commit", str(staged), "-m", f"step {step}", "--step", str(step), *options)
            if due:
                excess.append({"step": step, "above": report["quality"]["exact"] - due[0], "allowed": due[1]})
            resumed = due = None
            repo.run("checkout", report["commit"], "--to", str(fresh(restored)))
            change = {name: value - before[name] for name, value in load_file(exact / MODEL).items()}
            moments, size = shrink(load_file(exact / OPTIMIZER), change, alpha, beta, seconds)
            before = load_file(restored / MODEL)
            rows.append({"step": step, **size, "configuration": report["configuration"]})
            if step in kill_points(task, KILLS, task.every):
                other = Trainer.load(task, order, restored, exact)
                other.advance(step + task.every)
                other.save(home / "other", home / "other.safetensors")
                due = judge.gate(home / "other")["loss"], report["quality"]["limit"] - report["quality"]["exact"]
                save_file(moments, restored / OPTIMIZER, {"step": str(step)})
                resumed = report["commit"]
                run = Trainer.load(task, order, restored, exact if seconds == "exact" else restored)
        weights_bytes, final = repo.packs(), judge.final(exact)["loss"]
    raw = len(rows) * sum((exact / file).stat().st_size for file in (MODEL, OPTIMIZER))
    plain = json.loads((stored / "history.json").read_text())["final"]["loss"]
    result = {"order": order, "alpha": alpha, "beta": beta, "seconds": seconds, "rows": rows, "excess": excess}
    mean = {part: sum(row[part] for row in rows) / len(rows) for part in ("kept", "m", "v", "rest")}
    stored_bytes = weights_bytes + len(rows) * (mean["m"] + mean["v"] + mean["rest"])
    result |= {**mean, "weights_bytes": weights_bytes, "ratio": raw / stored_bytes, "final": final}
    result |= {"change": final / plain - 1, "refused": sum(one["above"] > one["allowed"] for one in excess)}
    shutil.rmtree(home)
    write(HOME / "results-excp" / f"{home.name}.json", result)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("betas", help="of the threshold of m, with commas; inf drops m")
    parser.add_argument("--seconds", choices=["zero", "factored", "exact"], default="factored", help="what v becomes")
    parser.add_argument("--alpha", type=float, default=5e-5, help="of the threshold of the weights; inf: 2.5 medians")
    parser.add_argument("--order", type=int, default=0, help="data order")
    args = parser.parse_args()
    for beta in args.betas.split(","):
        one = study(args.order, args.alpha, float(beta), args.seconds)
        print(json.dumps({key: one[key] for key in one if key != "rows"}), flush=True)


if __name__ == "__main__":
    main()
