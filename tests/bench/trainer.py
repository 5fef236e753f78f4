"""A small deterministic trainer: a byte-level transformer on the text of Python's standard library, numpy only.

It writes real training snapshots (f32 safetensors, and the same rounded to bf16) at a base step and at given gaps
after it, so that delta coders are judged on weights that AdamW moved and not on synthetic noise. Batches depend on
(seed, step) only, BLAS runs on one thread, and nothing else is random: two runs on one machine write the same bytes.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import math
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.tensors import Tensor, bf16_round, write_safetensors

Params = dict[str, np.ndarray]


@dataclass(frozen=True)
class Config:
    """Model, data and optimiser settings; the defaults give 1.25 M parameters."""

    width: int = 160
    layers: int = 4
    heads: int = 5
    context: int = 64
    batch: int = 16
    seed: int = 1
    peak_lr: float = 1.5e-3
    warmup: int = 40
    horizon: int = 600
    weight_decay: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    clip: float = 1.0


def load_text(limit: int = 4 << 20) -> np.ndarray:
    """The first `limit` bytes of the standard library's top-level modules, in the order of their names."""
    root = Path(sysconfig.get_paths()["stdlib"])
    parts: list[bytes] = []
    size = 0
    for path in sorted(root.glob("*.py")):
        parts.append(path.read_bytes())
        size += len(parts[-1])
        if size >= limit:
            break
    return np.frombuffer(b"".join(parts)[:limit], dtype=np.uint8)


def init_params(cfg: Config) -> Params:
    """GPT-2 style initial weights; the output head is tied to the embedding."""
    rng = np.random.default_rng([cfg.seed, 0])
    d = cfg.width

    def normal(shape: tuple[int, ...], std: float) -> np.ndarray:
        return (rng.standard_normal(shape) * std).astype(np.float32)

    out: Params = {"embed.weight": normal((256, d), 0.05), "position.weight": normal((cfg.context, d), 0.02)}
    residual = 0.02 / math.sqrt(2 * cfg.layers)
    for i in range(cfg.layers):
        p = f"layers.{i}."
        for norm in ("norm1", "norm2"):
            out[f"{p}{norm}.weight"] = np.ones(d, np.float32)
            out[f"{p}{norm}.bias"] = np.zeros(d, np.float32)
        for name, shape, std in (
            ("attention.qkv", (d, 3 * d), 0.04),
            ("attention.out", (d, d), residual),
            ("mlp.up", (d, 4 * d), 0.04),
            ("mlp.down", (4 * d, d), residual),
        ):
            out[f"{p}{name}.weight"] = normal(shape, std)
            out[f"{p}{name}.bias"] = np.zeros(shape[1], np.float32)
    out["norm.weight"] = np.ones(d, np.float32)
    out["norm.bias"] = np.zeros(d, np.float32)
    return out


def batch(cfg: Config, text: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of one step, a function of (seed, step) alone."""
    rng = np.random.default_rng([cfg.seed, 1, step])
    starts = rng.integers(0, len(text) - cfg.context - 1, cfg.batch)
    rows = text[starts[:, None] + np.arange(cfg.context + 1)]
    return rows[:, :-1].astype(np.int64), rows[:, 1:].astype(np.int64)


class Linear:
    """y = x W + b with the gradients of both."""

    def __init__(self, params: Params, grads: Params, name: str) -> None:
        self.w, self.b = params[f"{name}.weight"], params[f"{name}.bias"]
        self.grads, self.name = grads, name

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        return x @ self.w + self.b

    def backward(self, dy: np.ndarray) -> np.ndarray:
        x, flat = self.x.reshape(-1, self.x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        self.grads[f"{self.name}.weight"] = x.T @ flat
        self.grads[f"{self.name}.bias"] = flat.sum(0)
        return dy @ self.w.T


class LayerNorm:
    """Layer normalisation over the last axis."""

    def __init__(self, params: Params, grads: Params, name: str) -> None:
        self.w, self.b = params[f"{name}.weight"], params[f"{name}.bias"]
        self.grads, self.name = grads, name

    def forward(self, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        self.inv = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
        self.hat = centred * self.inv
        return self.hat * self.w + self.b

    def backward(self, dy: np.ndarray) -> np.ndarray:
        axes = tuple(range(dy.ndim - 1))
        self.grads[f"{self.name}.weight"] = (dy * self.hat).sum(axes)
        self.grads[f"{self.name}.bias"] = dy.sum(axes)
        dh = dy * self.w
        mean = dh.mean(-1, keepdims=True)
        along = (dh * self.hat).mean(-1, keepdims=True)
        return (dh - mean - self.hat * along) * self.inv


class Gelu:
    """GELU, tanh form."""

    SCALE = np.float32(math.sqrt(2 / math.pi))
    CUBE = np.float32(0.044715)

    def forward(self, x: np.ndarray) -> np.ndarray:
        self.x = x
        self.t = np.tanh(self.SCALE * (x + self.CUBE * x * x * x))
        return np.float32(0.5) * x * (1 + self.t)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        inner = self.SCALE * (1 + 3 * self.CUBE * self.x * self.x)
        return dy * np.float32(0.5) * (1 + self.t + self.x * (1 - self.t * self.t) * inner)


class Attention:
    """Causal multi-head self-attention."""

    def __init__(self, cfg: Config, params: Params, grads: Params, name: str) -> None:
        self.heads = cfg.heads
        self.qkv = Linear(params, grads, f"{name}.qkv")
        self.out = Linear(params, grads, f"{name}.out")
        self.mask = np.triu(np.full((cfg.context, cfg.context), -1e9, np.float32), 1)
        self.scale = np.float32(1 / math.sqrt(cfg.width // cfg.heads))

    def _split(self, x: np.ndarray) -> np.ndarray:
        n, t, d = x.shape
        return x.reshape(n, t, self.heads, d // self.heads).transpose(0, 2, 1, 3)

    def _join(self, x: np.ndarray) -> np.ndarray:
        n, h, t, k = x.shape
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(n, t, h * k)

    def forward(self, x: np.ndarray) -> np.ndarray:
        q, k, v = (self._split(part) for part in np.split(self.qkv.forward(x), 3, axis=-1))
        score = q @ k.transpose(0, 1, 3, 2) * self.scale + self.mask
        score = np.exp(score - score.max(-1, keepdims=True))
        prob = score / score.sum(-1, keepdims=True)
        self.cache = (q, k, v, prob)
        return self.out.forward(self._join(prob @ v))

    def backward(self, dy: np.ndarray) -> np.ndarray:
        q, k, v, prob = self.cache
        da = self._split(self.out.backward(dy))
        dprob = da @ v.transpose(0, 1, 3, 2)
        dscore = prob * (dprob - (dprob * prob).sum(-1, keepdims=True)) * self.scale
        parts = (dscore @ k, dscore.transpose(0, 1, 3, 2) @ q, prob.transpose(0, 1, 3, 2) @ da)
        return self.qkv.backward(np.concatenate([self._join(part) for part in parts], axis=-1))


class Model:
    """A pre-norm transformer; `step` returns the loss and fills `grads`."""

    def __init__(self, cfg: Config, params: Params) -> None:
        self.params, self.grads = params, {}
        self.blocks = [self._block(cfg, i) for i in range(cfg.layers)]
        self.norm = LayerNorm(params, self.grads, "norm")

    def _block(self, cfg: Config, i: int) -> tuple[LayerNorm, Attention, LayerNorm, Linear, Gelu, Linear]:
        p, params, grads = f"layers.{i}.", self.params, self.grads
        return (
            LayerNorm(params, grads, f"{p}norm1"),
            Attention(cfg, params, grads, f"{p}attention"),
            LayerNorm(params, grads, f"{p}norm2"),
            Linear(params, grads, f"{p}mlp.up"),
            Gelu(),
            Linear(params, grads, f"{p}mlp.down"),
        )

    def _forward(self, tokens: np.ndarray) -> np.ndarray:
        x = self.params["embed.weight"][tokens] + self.params["position.weight"]
        for norm1, attention, norm2, up, gelu, down in self.blocks:
            x = x + attention.forward(norm1.forward(x))
            x = x + down.forward(gelu.forward(up.forward(norm2.forward(x))))
        return self.norm.forward(x)

    def step(self, tokens: np.ndarray, targets: np.ndarray) -> float:
        hidden = self._forward(tokens)
        embed = self.params["embed.weight"]
        logits = hidden @ embed.T
        logits -= logits.max(-1, keepdims=True)
        exp = np.exp(logits)
        total = exp.sum(-1, keepdims=True)
        picked = np.take_along_axis(logits - np.log(total), targets[..., None], -1)
        dlogits = exp / total
        np.put_along_axis(dlogits, targets[..., None], np.take_along_axis(dlogits, targets[..., None], -1) - 1, -1)
        dlogits /= np.float32(targets.size)
        self._backward(tokens, hidden, dlogits)
        return float(-picked.mean())

    def _backward(self, tokens: np.ndarray, hidden: np.ndarray, dlogits: np.ndarray) -> None:
        embed = self.params["embed.weight"]
        dembed = dlogits.reshape(-1, 256).T @ hidden.reshape(-1, hidden.shape[-1])
        dx = self.norm.backward(dlogits @ embed)
        for norm1, attention, norm2, up, gelu, down in reversed(self.blocks):
            dx = dx + norm2.backward(up.backward(gelu.backward(down.backward(dx))))
            dx = dx + norm1.backward(attention.backward(dx))
        onehot = np.zeros((256, tokens.size), np.float32)
        onehot[tokens.ravel(), np.arange(tokens.size)] = 1
        self.grads["embed.weight"] = dembed + onehot @ dx.reshape(tokens.size, -1)
        self.grads["position.weight"] = dx.sum(0)


class AdamW:
    """AdamW with warm-up, cosine decay and gradient clipping; norms and biases do not decay."""

    def __init__(self, cfg: Config, params: Params) -> None:
        self.cfg, self.params = cfg, params
        self.m = {k: np.zeros_like(v) for k, v in params.items()}
        self.v = {k: np.zeros_like(v) for k, v in params.items()}

    def rate(self, step: int) -> float:
        cfg = self.cfg
        if step <= cfg.warmup:
            return cfg.peak_lr * step / cfg.warmup
        done = min(1.0, (step - cfg.warmup) / (cfg.horizon - cfg.warmup))
        return cfg.peak_lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))

    def update(self, grads: Params, step: int) -> None:
        cfg, rate = self.cfg, self.rate(step)
        norm = math.sqrt(sum(float((g * g).sum(dtype=np.float64)) for g in grads.values()))
        scale = np.float32(min(1.0, cfg.clip / (norm + 1e-6)))
        size = np.float32(rate * math.sqrt(1 - cfg.beta2**step) / (1 - cfg.beta1**step))
        for name, p in self.params.items():
            g = grads[name] * scale
            m, v = self.m[name], self.v[name]
            m += np.float32(1 - cfg.beta1) * (g - m)
            v += np.float32(1 - cfg.beta2) * (g * g - v)
            if p.ndim > 1:
                p *= np.float32(1 - rate * cfg.weight_decay)
            p -= size * m / (np.sqrt(v) + np.float32(cfg.eps))


def save(out: Path, step: int, params: Params, moments: AdamW | None) -> list[Path]:
    """Writes `step-N.f32.safetensors` and `step-N.bf16.safetensors`; the f32 file may carry the Adam moments too."""
    named = dict(params)
    if moments is not None:
        named |= {f"optimizer.exp_avg.{k}": v for k, v in moments.m.items()}
        named |= {f"optimizer.exp_avg_sq.{k}": v for k, v in moments.v.items()}
    full = [Tensor.of(name, array) for name, array in named.items()]
    half = [Tensor(name, "BF16", array.shape, bf16_round(array).tobytes()) for name, array in params.items()]
    paths = [out / f"step-{step}.f32.safetensors", out / f"step-{step}.bf16.safetensors"]
    for path, tensors in zip(paths, (full, half), strict=True):
        write_safetensors(path, tensors, {"format": "pt", "step": str(step)})
    return paths


def train(cfg: Config, out: Path, steps: set[int], optimizer: bool = False) -> dict[str, object]:
    """Trains to the last wanted step and saves at each of them; returns what was measured."""
    out.mkdir(parents=True, exist_ok=True)
    text, params = load_text(), init_params(cfg)
    model, adam = Model(cfg, params), AdamW(cfg, params)
    losses: dict[int, float] = {}
    began = time.perf_counter()
    for step in range(1, max(steps) + 1):
        loss = model.step(*batch(cfg, text, step))
        adam.update(model.grads, step)
        if step in steps or step % 50 == 0 or step == 1:
            losses[step] = round(loss, 4)
            print(f"step {step:5d}  loss {loss:.4f}  lr {adam.rate(step):.2e}", file=sys.stderr)
        if step in steps:
            save(out, step, params, adam if optimizer else None)
    info: dict[str, object] = {
        "config": asdict(cfg),
        "parameters": sum(p.size for p in params.values()),
        "seconds": round(time.perf_counter() - began, 1),
        "losses": losses,
        "steps": sorted(steps),
        "python": sys.version.split()[0],
        "numpy": np.__version__,
    }
    (out / "trainer.json").write_text(json.dumps(info, indent=1) + "\n")
    return info


def check_gradients() -> float:
    """Largest relative error of the gradients of a tiny f64 model against central differences (a self-test)."""
    cfg = Config(width=8, layers=2, heads=2, context=6, batch=3)
    params = {k: v.astype(np.float64) for k, v in init_params(cfg).items()}
    model, (tokens, targets) = Model(cfg, params), batch(cfg, load_text(1 << 16), 1)
    model.step(tokens, targets)
    grads = {k: v.copy() for k, v in model.grads.items()}
    rng, worst = np.random.default_rng(3), 0.0
    for name, p in params.items():
        at = tuple(int(rng.integers(n)) for n in p.shape) if name != "embed.weight" else (int(targets[0, 0]), 1)
        old, h = p[at], 1e-5
        p[at] = old + h
        up = model.step(tokens, targets)
        p[at] = old - h
        down = model.step(tokens, targets)
        p[at] = old
        numeric = (up - down) / (2 * h)
        worst = max(worst, abs(numeric - grads[name][at]) / max(1e-4, abs(numeric) + abs(grads[name][at])))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the snapshots")
    parser.add_argument("--base", type=int, default=400, help="step of the parent snapshot")
    parser.add_argument("--gaps", type=int, nargs="*", default=[1, 10, 100], help="children, in steps after the parent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--optimizer", action="store_true", help="keep the Adam moments in the f32 snapshots")
    parser.add_argument("--check", action="store_true", help="check the gradients numerically first")
    args = parser.parse_args()
    if args.check:
        error = check_gradients()
        print(f"largest relative gradient error: {error:.2e}", file=sys.stderr)
        if error > 1e-4:
            sys.exit("the gradients are wrong")
    steps = {args.base, *(args.base + gap for gap in args.gaps)}
    print(json.dumps(train(Config(seed=args.seed), args.out, steps, args.optimizer)))


if __name__ == "__main__":
    main()
