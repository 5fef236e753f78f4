"""`mdl.palettize`: what a DKM layer saves for the backward pass, and a real model of few values.

    PYTHONPATH=python python tests/bench/palettize_bench.py memory
    PYTHONPATH=python python tests/bench/palettize_bench.py small
    PYTHONPATH=python target/quality/venv/bin/python tests/bench/palettize_bench.py model

`memory` prints the table of docs/palettize.md for the paper's layer: 16.8 M weights, 8 clusters, 3 iterations, bf16.
`model` trains MiniLM for a task (tests/bench/quality/finetune.py): some steps as it is, and then as many more steps as
it is, followed by k-means of its weights, or palettized; `rival` by coremltools' DKMPalettizer, which has to be
installed. `small` does all of this with the net of examples/palettize.py. One thread. What is committed is loaded and
compared.
"""

from __future__ import annotations

import argparse
import copy
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mdl
import torch
from mdl.clustering.initial import initial
from mdl.clustering.layer import DKM, Settings
from mdl.clustering.learners import Learners
from mdl.clustering.marshal import Marshaling, counting
from torch import Tensor, nn

PAPER = 16_777_216
CLUSTERS, BITS, ITERATIONS = 8, 3, 3


class Share(Learners):
    """One of several learners, without the others: for the forward pass."""

    def __init__(self, world: int) -> None:
        self.world, self.rank = world, 0


def plain(weight: Tensor, layer: DKM) -> Tensor:
    """DKM as one writes it, by autograd."""
    x, c = weight.view(-1, 1), layer.centroids[0].to(weight.dtype)
    temperature = layer.distortion[0].to(weight.dtype)
    for _ in range(ITERATIONS):
        a = (-(x[:, None] - c[None]).square().sum(2) / temperature).softmax(1)
        c = (a.T @ x) / a.sum(0)[:, None]
    return (a @ c).view(weight.shape)


def memory(part: int) -> None:
    """Bytes are in proportion to the weights, but for tables; layers that save attention are measured on a part."""
    dense = PAPER * CLUSTERS * ITERATIONS * 2
    print(f"dense attention: {dense / 1e6:.1f} MB (weights x clusters x iterations x 2 bytes)\n")
    print("| saved | weights | saved, MB | for 16.8 M, MB | of dense | forward, s | backward, s |")
    print("|---|---|---|---|---|---|---|")
    whole = _weight(PAPER)
    small = _weight(PAPER // part)
    layer = _layer(whole)
    rows: list[tuple[str, Tensor, Callable[[Tensor], Tensor], bool]] = [
        ("plain autograd", small, lambda w: plain(w, layer), False),
        ("plain autograd, marshaled", small, lambda w: plain(w, layer), True),
    ]
    for words, more in (
        ("attention of each weight", {"unique": False, "recompute": False}),
        ("by value, list", {"index": "list", "recompute": False}),
        ("by value, list, 8 learners", {"index": "list", "recompute": False, "learners": Share(8)}),
        ("by value, the weight is its index", {"recompute": False}),
        ("list alone", {"index": "list"}),
        ("list alone, 8 learners", {"index": "list", "learners": Share(8)}),
        ("nothing but centroids (the default)", {}),
        ("not by value, nothing but centroids", {"unique": False}),
    ):
        made = DKM(Settings(BITS, **more), layer.centroids.double(), layer.distortion.double(), 1.0)  # type: ignore
        rows.append((words, small if more.get("unique") is False else whole, made, False))
    for words, weight, function, marshaled in rows:
        weight = weight.detach().requires_grad_()
        counter: Any = Marshaling([weight], copy=True).saving() if marshaled else counting([weight])
        began = time.perf_counter()
        with counter as found:
            out = function(weight)
        forward = time.perf_counter() - began
        backward = "not run"
        if "learners" not in words:
            began = time.perf_counter()
            out.backward(out.detach())
            backward = f"{time.perf_counter() - began:.2f}"
        # Each tensor that is saved goes by itself where nothing looks whether its storage was there before.
        size = found.saved if words == "plain autograd" else found.distinct
        _row(words, weight.numel(), size, dense, forward, backward)
        del out


def _row(words: str, n: int, size: int, dense: int, forward: float, backward: str) -> None:
    scaled = size * PAPER / n if n < PAPER and size > 1000 else size
    print(
        f"| {words} | {n / 1e6:.1f} M | {size / 1e6:.4g} | {scaled / 1e6:.4g} | {dense / scaled:,.4g}x "
        f"| {forward:.2f} | {backward} |",
        flush=True,
    )


def _weight(n: int) -> Tensor:
    return (torch.randn(n, generator=torch.Generator().manual_seed(0)) * 0.02).to(torch.bfloat16).requires_grad_()


def _layer(weight: Tensor) -> DKM:
    centroids, distortion = initial(weight.detach().view(-1, 1), CLUSTERS, "kmeans++", 0)
    return DKM(Settings(BITS), centroids[None], distortion[None], 1.0)


class Run:
    """Trainings of MiniLM that go on from one state."""

    def __init__(self, first: int, more: int) -> None:
        from quality.finetune import Finetune

        self._began = time.perf_counter()
        self._task = Finetune()
        self._task.steps = first + more
        self._steps = range(first, first + more)
        start = self._task.model()
        optimizer = self._task.optimiser(start)
        self._train(start, optimizer, range(first))
        self._states = _copied([start.state_dict(), optimizer.state_dict()])
        print(f"{first} steps, then {more} more; {time.perf_counter() - self._began:.0f} s so far\n")
        print("| weights | loss | accuracy | long loss | long accuracy | mrr | commit, MB | s |")
        print("|---|---|---|---|---|---|---|---|")

    def start(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The model and its optimizer after the first steps."""
        net = self._task.model()
        net.load_state_dict(self._states[0])
        optimizer = self._task.optimiser(net)
        optimizer.load_state_dict(_copied(self._states[1]))
        return net, optimizer

    def go_on(self, net: nn.Module, optimizer: Any, palettizer: Any = None) -> None:
        self._train(net, optimizer, self._steps, palettizer)

    def _train(self, net: nn.Module, optimizer: Any, steps: range, palettizer: Any = None) -> None:
        net.train()
        for step in steps:
            for group in optimizer.param_groups:
                group["lr"] = self._task.rate(step) * group.get("scale", 1.0)
            optimizer.zero_grad()
            self._task.loss(net, self._task.batch(0, step)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), self._task.clip)
            optimizer.step()
            if palettizer is not None:
                palettizer.step()

    def report(self, words: str, net: nn.Module) -> None:
        """Scores a model, commits it, and sees whether what is checked out is what was scored."""
        net.eval()
        scores = self._task.final_scores(net)
        with tempfile.TemporaryDirectory() as place:
            repo = mdl.Repo.init(place)
            stored = repo.commit({"model": net.state_dict()}, wait=True).stored_bytes
            for name, value in repo.load()["model"].items():
                if not torch.equal(value, net.state_dict()[name]):
                    raise SystemExit(f"{name} is not what was scored")
        cells = " | ".join(f"{scores[key]:.4f}" for key in ("loss", "accuracy", "long_loss", "long_accuracy", "mrr"))
        print(f"| {words} | {cells} | {stored / 1e6:.2f} | {time.perf_counter() - self._began:.0f} |", flush=True)


def model(first: int, more: int, temperature: float) -> None:
    run = Run(first, more)
    net, optimizer = run.start()
    run.go_on(net, optimizer)
    run.report("float32", net)
    trained = _copied(net.state_dict())
    for bits in (4, 3):
        net.load_state_dict(trained)
        afterwards = mdl.palettize(net, bits=bits, key16=True)
        afterwards.prepare()
        run.report(f"{bits} bits, k-means afterwards", afterwards.finalize())
        clustered, optimizer = run.start()
        palettizer = mdl.palettize(clustered, bits=bits, key16=True, temperature=temperature)
        palettizer.prepare(optimizer)
        run.go_on(clustered, optimizer, palettizer)
        run.report(f"{bits} bits, `mdl.palettize`", palettizer.finalize())


def rival(first: int, more: int, _: float) -> None:
    """The same weights clustered by coremltools, with its own settings but for the bits."""
    run = Run(first, more)
    for bits in (4, 3):
        net, optimizer = run.start()
        palettizer = _rival(net, bits)
        run.go_on(net, optimizer, palettizer)
        run.report(f"{bits} bits, coremltools", palettizer.finalize())


def _rival(net: nn.Module, bits: int) -> Any:
    from coremltools.optimize.torch.palettization import DKMPalettizer, DKMPalettizerConfig

    settings = {"n_bits": bits, "cluster_dim": 1, "weight_threshold": 2048, "milestone": 0}
    palettizer = DKMPalettizer(net, DKMPalettizerConfig.from_dict({"global_config": settings}))
    palettizer.prepare(inplace=True)
    return palettizer


class Small:
    """The net of examples/palettize.py, which guesses the next byte of Python's own sources."""

    def __init__(self, steps: int) -> None:
        files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = b"\0".join(f.read_bytes() for f in files)[:2_000_000]
        windows = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().unfold(0, 17, 7)
        self._train, self._held_out, self._steps = windows[:-4000], windows[-4000:], steps
        torch.manual_seed(0)
        self.net: nn.Module = nn.Sequential(
            nn.Embedding(256, 24), nn.Flatten(), nn.Linear(24 * 16, 256), nn.ReLU(), nn.Linear(256, 256)
        )
        self.go_on(self.net, torch.optim.AdamW(self.net.parameters(), lr=2e-3))

    def _loss(self, net: nn.Module, rows: Tensor) -> Tensor:
        return nn.functional.cross_entropy(net(rows[:, :-1]), rows[:, -1])

    def go_on(self, net: nn.Module, optimizer: Any, palettizer: Any = None) -> None:
        net.train()
        random = torch.Generator().manual_seed(1)
        for _ in range(self._steps):
            optimizer.zero_grad()
            self._loss(net, self._train[torch.randint(0, len(self._train), (256,), generator=random)]).backward()
            optimizer.step()
            if palettizer is not None:
                palettizer.step()

    def report(self, words: str, net: nn.Module, seconds: float) -> None:
        with torch.no_grad():
            loss = self._loss(net.eval(), self._held_out).item()
        values = max(len(p.unique()) for p in net.parameters() if p.dim() > 1)
        print(f"| {words} | {loss:.4f} | {values} | {1e3 * seconds / self._steps:.0f} |", flush=True)


def small(steps: int, rates: tuple[float, ...] = (5e-4, 5e-5)) -> None:
    """Loss on held-out text, most values of a weight, time of a step."""
    task = Small(steps)
    print("| learning rate, bits, weights | loss | values | step, ms |\n|---|---|---|---|")

    def run(words: str, rate: float, make: Callable[[nn.Module, Any], Any]) -> nn.Module:
        net = copy.deepcopy(task.net)
        optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
        palettizer, began = make(net, optimizer), time.perf_counter()
        task.go_on(net, optimizer, palettizer)
        seconds = time.perf_counter() - began
        task.report(words, net if palettizer is None else palettizer.finalize(), seconds)
        return net

    for rate in rates:
        plain = run(f"{rate:g}, float32", rate, lambda net, optimizer: None)
        for bits in (3, 4):
            afterwards = mdl.palettize(copy.deepcopy(plain), bits=bits)
            afterwards.prepare()
            task.report(f"{rate:g}, {bits}, k-means afterwards", afterwards.finalize(), 0.0)

            def ours(net: nn.Module, optimizer: Any, bits: int = bits) -> Any:
                palettizer = mdl.palettize(net, bits=bits)
                palettizer.prepare(optimizer)
                return palettizer

            run(f"{rate:g}, {bits}, `mdl.palettize`", rate, ours)
            try:
                run(f"{rate:g}, {bits}, coremltools", rate, lambda net, _, bits=bits: _rival(net, bits))
            except ImportError:
                print(f"| {rate:g}, {bits}, coremltools | is not installed | | |")


def _copied(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    return [_copied(value) for value in state] if isinstance(state, list) else state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "small", "model", "rival"])
    parser.add_argument("--part", type=int, default=16, help="attention is saved of one weight in so many")
    parser.add_argument("--first", type=int, default=150, help="steps before weights are clustered")
    parser.add_argument("--more", type=int, default=150, help="steps with clustered weights")
    parser.add_argument("--temperature", type=float, default=3.0, help="of `mdl.palettize`")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "memory":
        memory(args.part)
    elif args.what == "small":
        small(200)
    else:
        {"model": model, "rival": rival}[args.what](args.first, args.more, args.temperature)


if __name__ == "__main__":
    main()
