"""A fine-tune of a real pretrained model: MiniLM (22.7 M parameters) learns which modules a text was written for.

The third task of the quality bench. BERT is written out here, in float32, without dropout. AdamW decays everything,
word embeddings too, so that rows which no text reaches move all the same. What is judged at the end is the loss on
texts that neither training nor the gate sees, and what training does not ask for: whether the first sentence of a
docstring of numpy still finds its rest, and texts four times as long as those of the training.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from safetensors.torch import load_file
from support.models import MINILM
from torch import Tensor, nn
from torch.nn import functional

from quality.tasks import Scores, generator
from quality.texts import GROUPS, Tokens, general_pairs, labelled

WIDTH, INNER, LAYERS, HEADS = 384, 1536, 6, 12
WORDS, POSITIONS = 30522, 512
LENGTH, LONG = 64, 256
Texts = list[list[int]]
Labelled = tuple[Texts, list[int]]


class Embeddings(nn.Module):
    position_ids: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, WIDTH)
        self.position_embeddings = nn.Embedding(POSITIONS, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(POSITIONS)[None])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.word_embeddings(tokens) + self.position_embeddings.weight[: tokens.shape[1]]
        return self.LayerNorm(x + self.token_type_embeddings.weight[0])


class Output(nn.Module):
    """A linear layer, added to what came in, normalised."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + before)


class Layer(nn.Module):
    """Modules are named as in the pretrained file."""

    def __init__(self) -> None:
        super().__init__()
        heads = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value")})
        self.attention = nn.ModuleDict({"self": heads, "output": Output(WIDTH)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(WIDTH, INNER)})
        self.output = Output(INNER)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = (
            linear(x).view(rows, length, HEADS, -1).transpose(1, 2) for linear in self.attention["self"].values()
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = self.attention["output"](mixed.transpose(1, 2).reshape(rows, length, WIDTH), x)
        return self.output(functional.gelu(self.intermediate["dense"](x)), x)


class Bert(nn.Module):
    """The encoder, its pooler over the mean of a text's tokens, and a new head."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([Layer() for _ in range(LAYERS)])})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(WIDTH, WIDTH)})
        self.classifier = nn.Linear(WIDTH, classes)
        lacking, unknown = self.load_state_dict(load_file(MINILM), strict=False)
        assert set(lacking) == {"classifier.weight", "classifier.bias"}, lacking
        assert not unknown, unknown
        nn.init.normal_(self.classifier.weight, 0.0, 0.02, generator=generator("finetune", "head"))
        nn.init.zeros_(self.classifier.bias)

    def embed(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The mean over a text's tokens; what the pretrained model was made for."""
        x = self.embeddings(tokens)
        for layer in self.encoder["layer"]:
            x = layer(x, mask[:, None, None, :])
        weight = mask[..., None].to(x.dtype)
        return (x * weight).sum(1) / weight.sum(1)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.pooler["dense"](self.embed(tokens, mask))))


def padded(texts: Texts) -> tuple[Tensor, Tensor]:
    """Token numbers and which of them are text, as long as the longest."""
    tokens = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    lengths = torch.tensor([len(text) for text in texts])
    return tokens, torch.arange(tokens.shape[1]) < lengths[:, None]


def by_length(texts: Texts, rows: int) -> list[list[int]]:
    """Numbers of the texts of every batch, those of like length together: less to compute for padding."""
    order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), i))
    return [order[at : at + rows] for at in range(0, len(order), rows)]


class Finetune:
    """`smoke`: a run of two checkpoints with small sets, to see whether everything works."""

    every, start, clip = 20, 0, 1.0
    rows, peak, warmup = 16, 3e-5, 30

    def __init__(self, smoke: bool = False) -> None:
        self.name = "finetune-smoke" if smoke else "finetune"
        self.steps, self.every = (20, 10) if smoke else (300, 20)
        gate, final, longs, self.pairs_wanted = (4, 8, 2, 40) if smoke else (20, 100, 16, 300)
        self.tokens = Tokens()
        self.gate: Labelled = ([], [])
        self.final: Labelled = ([], [])
        self.long: Labelled = ([], [])
        self.train: list[Texts] = []
        for label, texts in enumerate(labelled()):
            if len(texts) < 3 * (gate + final):
                raise SystemExit(f"the standard library has only {len(texts)} texts of group {list(GROUPS)[label]}")
            self._add(self.gate, texts[:gate], label, LENGTH)
            self._add(self.final, texts[gate : gate + final], label, LENGTH)
            self._add(self.long, self._joined(texts[gate : gate + final])[:longs], label, LONG)
            self.train.append([self.tokens.encode(text, LENGTH) for text in texts[gate + final :]])
        pairs = general_pairs(self.pairs_wanted)
        self.general = [[self.tokens.encode(pair[i], LENGTH) for pair in pairs] for i in (0, 1)]

    def _add(self, to: Labelled, texts: Sequence[str], label: int, length: int) -> None:
        to[0].extend(self.tokens.encode(text, length) for text in texts)
        to[1].extend([label] * len(texts))

    def _joined(self, texts: Sequence[str]) -> list[str]:
        """Texts of one group, one after the other until they fill a long one."""
        out, block = [], ""
        for text in texts:
            block = f"{block} {text}"
            if len(self.tokens.encode(block, LONG)) == LONG:
                out.append(block)
                block = ""
        return out

    def model(self) -> nn.Module:
        return Bert(len(GROUPS))

    def optimiser(self, model: nn.Module) -> torch.optim.Optimizer:
        head = [p for name, p in model.named_parameters() if name.startswith("classifier.")]
        body = [p for name, p in model.named_parameters() if not name.startswith("classifier.")]
        groups = [{"params": body}, {"params": head, "scale": 20.0}]
        return torch.optim.AdamW(groups, lr=self.peak, weight_decay=0.01)

    def rate(self, step: int) -> float:
        return self.peak * min((step + 1) / self.warmup, (self.steps - step) / max(1, self.steps - self.warmup))

    def batch(self, order: int, step: int) -> tuple[Tensor, Tensor, Tensor]:
        random = generator("finetune", order, step)
        labels = torch.randint(0, len(self.train), (self.rows,), generator=random)
        places = torch.rand(self.rows, generator=random, dtype=torch.float64).tolist()
        texts = [self.train[i][int(at * len(self.train[i]))] for i, at in zip(labels.tolist(), places, strict=True)]
        return *padded(texts), labels

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(model(batch[0], batch[1]), batch[2])

    def gate_scores(self, model: nn.Module) -> Scores:
        return self._classified(model, self.gate)

    def final_scores(self, model: nn.Module) -> Scores:
        """The head's loss and accuracy on held-out and on long texts, and the mean reciprocal rank in general."""
        long = self._classified(model, self.long)
        return {
            **self._classified(model, self.final),
            "long_loss": long["loss"],
            "long_accuracy": long["accuracy"],
            "mrr": self._found(model),
        }

    @torch.no_grad()
    def _classified(self, model: nn.Module, data: Labelled) -> Scores:
        loss = right = 0.0
        for chosen in by_length(data[0], 32):
            labels = torch.tensor([data[1][i] for i in chosen])
            out = model(*padded([data[0][i] for i in chosen]))
            loss += functional.cross_entropy(out, labels, reduction="sum").item()
            right += (out.argmax(1) == labels).sum().item()
        return {"loss": loss / len(data[1]), "accuracy": right / len(data[1])}

    @torch.no_grad()
    def _found(self, model: nn.Module) -> float:
        sides = []
        for texts in self.general:
            side = torch.empty(len(texts), WIDTH)
            for chosen in by_length(texts, 32):
                side[chosen] = functional.normalize(model.embed(*padded([texts[i] for i in chosen])), dim=1)
            sides.append(side)
        scores = sides[0] @ sides[1].T
        if not scores.isfinite().all():
            return float("nan")
        return (1 / (scores >= scores.diagonal()[:, None]).sum(1)).mean().item()
