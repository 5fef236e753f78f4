"""Quality of a MiniLM checkpoint for `mdl compare --eval`: does it find the text that belongs to a sentence?

The task has a right answer that no model was asked for: the first sentence of a docstring of Python's standard library
must be nearer to the rest of its own docstring than to the rest of 149 others. Printed is the mean reciprocal rank of
the right one, higher is better. BERT in numpy, WordPiece included; the docstrings are those of the running Python.

    mdl compare model.safetensors --higher-is-better --eval 'python tests/bench/minilm_eval.py "$MDL_CANDIDATE_DIR"'
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ast
import re
import sys
import sysconfig
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.models import MINILM_DIR
from support.tensors import read_safetensors

PAIRS = 150
LENGTH = 32
LAYERS, HEADS = 6, 12


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text.lower())


class WordPiece:
    """BERT's uncased tokens."""

    def __init__(self) -> None:
        lines = (MINILM_DIR / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self.ids = {token: i for i, token in enumerate(lines)}

    def word(self, word: str) -> list[int]:
        out, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.ids:
                    out.append(self.ids[piece])
                    start = end
                    break
            else:
                return [self.ids["[UNK]"]]
        return out

    def encode(self, text: str) -> list[int]:
        pieces = [p for w in words(text) for p in self.word(w)][: LENGTH - 2]
        return [self.ids["[CLS]"], *pieces, self.ids["[SEP]"]]


def pairs() -> list[tuple[str, str]]:
    """(first sentence, the rest) of docstrings, spread over the modules in the order of their names."""
    found: dict[str, str] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        taken = 0
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="ignore"))):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or taken == 4:
                continue
            text = " ".join((ast.get_docstring(node) or "").split())
            first, _, rest = text.partition(". ")
            if len(first) > 30 and len(rest) > 60 and first not in found:
                found[first] = rest
                taken += 1
    step = max(1, len(found) // PAIRS)
    return list(found.items())[::step][:PAIRS]


def gelu(x: np.ndarray) -> np.ndarray:
    """With the error function of Abramowitz and Stegun 7.1.26: within 2e-7."""
    z = np.abs(x) / np.float32(2**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - poly * np.exp(-z * z))
    return (0.5 * x * (1 + erf)).astype(np.float32)


class Bert:
    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.w = weights

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-12))
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Unit vectors: the mean over a text's tokens. `ids` and `mask` are [texts, tokens]."""
        e = "embeddings"
        x = self.w[f"{e}.word_embeddings.weight"][ids] + self.w[f"{e}.position_embeddings.weight"][: ids.shape[1]]
        x = self.norm(f"{e}.LayerNorm", x + self.w[f"{e}.token_type_embeddings.weight"][0])
        for i in range(LAYERS):
            x = self.layer(f"encoder.layer.{i}", x, mask)
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def layer(self, name: str, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        b, t, d = x.shape
        q, k, v = (
            self.linear(f"{name}.attention.self.{p}", x).reshape(b, t, HEADS, -1).transpose(0, 2, 1, 3)
            for p in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32((d // HEADS) ** 0.5)
        scores = scores + (mask[:, None, None, :] - 1) * np.float32(1e9)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        mixed = mixed.transpose(0, 2, 1, 3).reshape(b, t, d)
        x = self.norm(f"{name}.attention.output.LayerNorm", x + self.linear(f"{name}.attention.output.dense", mixed))
        inner = gelu(self.linear(f"{name}.intermediate.dense", x))
        return self.norm(f"{name}.output.LayerNorm", x + self.linear(f"{name}.output.dense", inner))


def embed(bert: Bert, pieces: WordPiece, texts: list[str]) -> np.ndarray:
    out = []
    for start in range(0, len(texts), 50):
        ids = np.zeros((len(texts[start : start + 50]), LENGTH), np.int64)
        mask = np.zeros(ids.shape, np.float32)
        for i, text in enumerate(texts[start : start + 50]):
            tokens = pieces.encode(text)
            ids[i, : len(tokens)], mask[i, : len(tokens)] = tokens, 1
        out.append(bert.embed(ids, mask))
    return np.concatenate(out)


def main() -> None:
    path = next(p for p in sorted(Path(sys.argv[1]).rglob("*.safetensors")))
    tensors = {t.name: t for t in read_safetensors(path)[0]}
    bert = Bert({n: t.array() for n, t in tensors.items() if t.dtype == "F32"})
    pieces, texts = WordPiece(), pairs()
    a, b = (embed(bert, pieces, [p[i] for p in texts]) for i in (0, 1))
    scores = a @ b.T
    rank = (scores >= scores.diagonal()[:, None]).sum(1)
    print(f"{len(texts)} pairs, right at first {np.mean(rank == 1):.4f}", file=sys.stderr)
    value = float(np.mean(1 / rank)) if np.isfinite(scores).all() else float("nan")
    print(f"{value:.5f}")


if __name__ == "__main__":
    main()
