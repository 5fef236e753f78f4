"""`mdl.nn`: memory, time and loss of compressed weights, in training and inference (docs/benchmarks/nn.md).

    PYTHONPATH=python:tests .venv/bin/python tests/bench/nn_bench.py memory train lossy inference codec report

Each piece takes less than three minutes and leaves its numbers in target/nn-bench.json; `report` writes the page.

`memory`: peak of all bytes that malloc handed out (torch's, the native code's, Python's) while a model is trained, less
what there was before the model was made, by an interposed malloc (live_bytes.c). A process for each way. The batch is
one row of 8 tokens, so that activations weigh nothing. `train`: time of a step with a batch of a few hundred tokens,
by one thread and by as many as there are cores (where nothing else runs: that is time on the clock).
`lossy`: a byte-level GPT is trained a little, then its weights are kept in 3, 1 and 0 bits (layout of NeuZip's
tables). `inference`: MiniLM in bf16, its outputs, bytes and time, beside torch on plain weights. `commits`: what
commits of a compressed model take beside those of a plain one (docs/nn.md). `codec`: coding alone, by size.
"""

from __future__ import annotations

import copy
import ctypes
import json
import math
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import mdl
import nn_page
import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[2]
CORES = os.cpu_count() or 1
NUMBERS = ROOT / "target" / "nn-bench.json"
WAYS = {
    "LOMO, SGD, plain": ("lomo", {}),
    "mdl.nn.SGD, lossless": ("sgd", {}),
    "AdamW, plain": ("torch-adamw", {}),
    "mdl.nn.AdamW, exact moments": ("adamw", {"moments": "exact"}),
    "mdl.nn.AdamW, 8 bits": ("adamw", {"moments": 8}),
    "mdl.nn.AdamW, 4 bits": ("adamw", {"moments": 4}),
}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.before, self.after = width // 64, nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (p(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.query, self.key, self.value))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class GPT(nn.Module):
    """Reads bytes. Its largest weight is less than 1/20 of all."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, rows: Tensor) -> Tensor:
        return F.cross_entropy(self(rows[:, :-1]).flatten(0, 1).float(), rows[:, 1:].flatten())


def text(length: int) -> Tensor:
    """Rows of Python's own sources."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    content = b"\0".join(f.read_bytes() for f in files)[:4_000_000]
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).long().unfold(0, length + 1, length)


def stepper(model: Any, way: str, settings: dict[str, Any], mode: dict[str, Any]) -> Callable[[Tensor], float]:
    """One training step, as a function of the batch."""
    if way in ("sgd", "adamw"):
        mdl.nn.compress(model, **mode)
        optimizer = (mdl.nn.SGD if way == "sgd" else mdl.nn.AdamW)(model, lr=1e-3, **settings)

        def fused(rows: Tensor) -> float:
            loss = model.loss(rows)
            optimizer.backward(loss)
            optimizer.step()
            return loss.item()

        return fused
    if way == "lomo":

        @torch.no_grad()
        def update(parameter: Tensor) -> None:
            assert parameter.grad is not None
            parameter.add_(parameter.grad, alpha=-1e-3)
            parameter.grad = None

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)

        def lomo(rows: Tensor) -> float:
            loss = model.loss(rows)
            loss.backward()
            return loss.item()

        return lomo
    plain = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(rows: Tensor) -> float:
        plain.zero_grad()
        loss = model.loss(rows)
        loss.backward()
        plain.step()
        return loss.item()

    return step


def peak(way: str) -> dict[str, float]:
    """In a process of its own, under the counting malloc."""
    count = ctypes.CDLL(None)
    count.live_bytes.restype = count.live_bytes_most.restype = ctypes.c_long
    torch.manual_seed(0)
    kind, settings = WAYS[way]
    rows = text(8)[:1]
    # What torch keeps for each shape of a product is there before anything is counted.
    tiny = GPT(512, 1, 8).to(torch.bfloat16)
    warm = stepper(tiny, kind, settings, {})
    warm(rows)
    del tiny, warm
    mdl.nn.BUFFER.clear()
    before = count.live_bytes()
    model = GPT(512, 12, 8).to(torch.bfloat16)
    weights = sum(p.numel() for p in model.parameters()) * 2
    largest = max(p.numel() for p in model.parameters()) * 2
    step = stepper(model, kind, settings, {})
    for _ in range(2):
        step(rows)
    count.live_bytes_reset()
    for _ in range(2):
        step(rows)
    resting = count.live_bytes() - before
    return {"peak": count.live_bytes_most() - before, "resting": resting, "weights": weights, "largest": largest}


def memory() -> dict[str, Any]:
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "live_bytes.so"
        source = Path(__file__).with_name("live_bytes.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        for way in WAYS:
            environment = os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "2"}
            command = [sys.executable, __file__, "peak", way]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            out[way] = json.loads(done.stdout.splitlines()[-1])
            print(way, out[way], flush=True)
    return out


def train() -> dict[str, Any]:
    return {str(threads): steps(threads) for threads in (1, CORES)}


def steps(threads: int) -> dict[str, float]:
    """Steps of each way in turn, so that a slow second hits all."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    base, rows = GPT(512, 12, 64).to(torch.bfloat16), text(64)[:8]
    ways = {way: stepper(copy.deepcopy(base), *WAYS[way], {}) for way in WAYS}
    ways |= {f"mdl.nn.SGD, {bits} bits": stepper(copy.deepcopy(base), "sgd", {}, {"bits": bits}) for bits in (3, 1, 0)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(8):
        for way, step in ways.items():
            began = time.perf_counter()
            step(rows)
            times[way].append(time.perf_counter() - began)
    torch.set_num_threads(1)
    return {way: sorted(found[1:])[len(found[1:]) // 2] for way, found in times.items()}


def lossy() -> dict[str, Any]:
    torch.manual_seed(0)
    data = text(64)
    train_rows, held_out = data[:-400], data[-200:]
    out: dict[str, Any] = {"training": {}, "blocks": {}}
    modes: dict[str, dict[str, Any]] = {"lossless": {}, **{f"{b} bits": {"bits": b, "block": 512} for b in (3, 1, 0)}}
    base = GPT(256, 6, 64).to(torch.bfloat16)
    trained: Any = None
    for name, mode in modes.items():
        model = copy.deepcopy(base)
        step = stepper(model, "adamw", {"moments": "exact"}, mode)
        random, began = torch.Generator().manual_seed(1), time.process_time()
        for _ in range(LOSSY_STEPS):
            step(train_rows[torch.randint(0, len(train_rows), (16,), generator=random)])
        took = (time.process_time() - began) / LOSSY_STEPS
        with torch.no_grad():
            loss = model.loss(held_out).item()
        out["training"][name] = {"loss": loss, "ratio": mdl.nn.report(model).ratio, "step": took}
        print(name, out["training"][name], flush=True)
        if not mode:
            trained = mdl.nn.decompress(model)
    weights = [("plain", None, 0)] + [(f"{b} bits", b, n) for b in (3, 1, 0) for n in (32, 64, 128, 256, 512)]
    for name, bits, block in [weights[0], ("lossless", None, 1), *weights[1:]]:
        model = copy.deepcopy(trained)
        if block:
            mdl.nn.compress(model, bits=bits, block=max(block, 32) if bits is not None else 512)
        with torch.no_grad():
            loss = model.loss(held_out).item()
            took = best(lambda model=model: model(held_out[:1, :-1]), 5)
        ratio = mdl.nn.report(model).ratio if block else 1.0
        out["blocks"][f"{name}, {block}"] = {"perplexity": math.exp(loss), "ratio": ratio, "time": took}
    return out


LOSSY_STEPS = 24


def best(work: Callable[[], Any], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def inference() -> dict[str, Any]:
    import minilm_eval
    import transformers
    from support.models import MINILM_DIR

    transformers.logging.set_verbosity_error()
    plain = transformers.BertModel.from_pretrained(MINILM_DIR, add_pooling_layer=False).eval().to(torch.bfloat16)
    pieces, texts = minilm_eval.WordPiece(), [side for pair in minilm_eval.pairs() for side in pair]
    ids = torch.zeros((len(texts), minilm_eval.LENGTH), dtype=torch.long)
    for row, words in zip(ids, (pieces.encode(t) for t in texts), strict=True):
        row[: len(words)] = torch.tensor(words)

    @torch.no_grad()
    def outputs(model: Any) -> Tensor:
        mask = (ids > 0).long()
        mask[:, 0] = 1
        return model(input_ids=ids, attention_mask=mask).last_hidden_state.float() * mask[..., None]

    def score(hidden: Tensor) -> float:
        vectors = F.normalize(hidden.sum(1), dim=-1)
        near = vectors[0::2] @ vectors[1::2].T
        ranks = (near >= near.diagonal()[:, None]).sum(1)
        return (1 / ranks).mean().item()

    expected = outputs(plain)
    one = {"input_ids": ids[:1, :1], "attention_mask": torch.ones(1, 1, dtype=torch.long)}
    row = {"input_ids": ids[:1], "attention_mask": torch.ones_like(ids[:1])}
    repo = mdl.Repo.init(Path(tempfile.mkdtemp()) / "r")
    version = repo.commit({"model": plain}, wait=True)
    out: dict[str, Any] = {}
    dense = sum(p.numel() * p.element_size() for p in plain.parameters())
    for name, bits in (("plain", None), ("lossless", None), ("3 bits", 3), ("1 bit", 1), ("0 bits", 0)):
        model = plain
        if name != "plain":
            model = mdl.nn.load(repo, version.id, model=copy.deepcopy(plain), bits=bits).eval()
        hidden = outputs(model)
        found = None if name == "plain" else mdl.nn.report(model)
        resident = dense if found is None else found.compressed_bytes + found.other_bytes
        with torch.no_grad():
            token, line = best(lambda m=model: m(**one), 8), best(lambda m=model: m(**row), 8)
        out[name] = {
            "same": torch.equal(hidden, expected), "ratio": resident / dense, "score": score(hidden),
            "buffer": mdl.nn.BUFFER.nbytes, "token": token, "line": line, "dense": dense,
        }  # fmt: skip
        print(name, out[name], flush=True)
    out["layers"] = layers()
    return out


def layers() -> dict[str, Any]:
    """One large layer, one token, by one thread and by all: torch on plain weights, and the decode inside."""
    from mdl.nn.segments import BUFFER, Coding, Store
    from mdl.nn.tiles import linear

    torch.manual_seed(0)
    weight = (torch.randn(4096, 4096) * 0.02).to(torch.bfloat16)
    x, space = torch.randn(1, 1, 4096).to(torch.bfloat16), torch.empty_like(weight)
    store = Store.of(weight, Coding())

    def whole() -> Tensor:
        # What it holds is forgotten, its memory is not.
        BUFFER.memory(0, weight.device)
        return F.linear(x, BUFFER.decoded(store))

    out: dict[str, Any] = {"ratio": store.handle.nbytes / store.dense_bytes}
    for threads in (1, CORES):
        torch.set_num_threads(threads)
        assert torch.equal(linear(x, store, None, None), F.linear(x, weight))
        out[str(threads)] = {
            "plain": best(lambda: F.linear(x, weight), 20),
            "layer": best(lambda: linear(x, store, None, None), 20),
            "decode": best(lambda: store.handle.decode_into(space), 20),
            "whole": best(whole, 20),
        }
    torch.set_num_threads(1)
    return out


def commits() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(24)]).to(torch.bfloat16)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    rounds: list[dict[str, list[float]]] = []
    for _ in range(5):
        packed, found = mdl.nn.compress(copy.deepcopy(model)), {}
        with tempfile.TemporaryDirectory() as scratch:
            repos = {name: mdl.Repo.init(Path(scratch) / name) for name in ("plain", "compressed")}

            def commit(name: str, what: str, state: nn.Module) -> None:
                began = time.process_time()
                done = repos[name].commit({"model": state}, wait=True)  # noqa: B023
                found[f"{what}, {name}"] = [time.process_time() - began, done.stored_bytes]  # noqa: B023

            for what in ("first", "same"):
                commit("plain", what, model)
                commit("compressed", what, packed)
            with torch.no_grad():
                for parameter in packed.parameters():
                    parameter.add_((torch.rand(parameter.shape) < 0.05).to(torch.bfloat16) * 1e-3)
            commit("compressed", "changed", packed)
        rounds.append(found)
    numbers = {name: [sorted(r[name][i] for r in rounds)[2] for i in range(2)] for name in rounds[0]}
    print(json.dumps(numbers, indent=1))
    return numbers


def codec() -> list[list[str]]:
    """Lines of the codec's own example: coding, elements, ratio, GB/s encoded and decoded."""
    command = ["cargo", "run", "-q", "--release", "--locked", "-p", "mdl-codec", "--example", "compressed_bench"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    print(done.stdout, flush=True)
    # A coding's name may have blanks.
    return [line.rsplit(maxsplit=4) for line in done.stdout.splitlines()[1:]]


PIECES: dict[str, Callable[[], Any]] = {
    "memory": memory, "train": train, "lossy": lossy, "inference": inference, "codec": codec, "commits": commits,
}  # fmt: skip


def main() -> None:
    if sys.argv[1] == "peak":
        print(json.dumps(peak(sys.argv[2])))
        return
    for piece in sys.argv[1:]:
        if piece == "report":
            nn_page.write(json.loads(NUMBERS.read_text()), LOSSY_STEPS)
            continue
        torch.set_num_threads(1)
        found: Any = PIECES[piece]()
        numbers = json.loads(NUMBERS.read_text()) if NUMBERS.is_file() else {}
        numbers[piece] = found
        NUMBERS.parent.mkdir(exist_ok=True)
        NUMBERS.write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
