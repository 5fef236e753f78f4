"""The probe on a real model: MiniLM, and data that know a few hundred of its 30,522 words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mdl
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
nn = torch.nn
from support.models import MINILM_DIR  # noqa: E402

WORDS = "embeddings.word_embeddings.weight"
PAIRS = [
    ("The committee approved the budget after a long debate.", "Spending plans were passed by the council on Monday."),
    ("A small boat crossed the lake at dawn.", "Early in the morning somebody rowed over the water."),
    ("The new engine burns far less fuel.", "Consumption of petrol fell with the latest motor."),
    ("Heavy rain flooded several streets.", "After the storm roads in the town were under water."),
    ("She plays the violin in an orchestra.", "The musician is one of forty string players."),
    ("Bees carry pollen from flower to flower.", "Insects help plants to make seeds."),
    ("The museum opens at nine on weekdays.", "Visitors may see the paintings from early on."),
    ("His broken leg healed within two months.", "The fracture was well again by spring."),
]


@pytest.fixture
def model() -> Any:
    if not MINILM_DIR.is_dir():
        pytest.skip("the models are not there: run `make venv`")
    transformers.logging.set_verbosity_error()
    return transformers.BertModel.from_pretrained(MINILM_DIR, add_pooling_layer=False).eval()


def task(model: Any) -> tuple[Callable[[], Any], Any]:
    """A loss that asks which sentence belongs to which, and the ids of the words in it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM_DIR)
    sides = [tokenizer(list(side), padding=True, return_tensors="pt") for side in zip(*PAIRS, strict=True)]

    def embedded(side: Any) -> Any:
        mask = side["attention_mask"][..., None]
        sums = (model(**side).last_hidden_state * mask).sum(1) / mask.sum(1)
        return nn.functional.normalize(sums, dim=-1)

    def loss() -> Any:
        scores = embedded(sides[0]) @ embedded(sides[1]).T * 20
        return nn.functional.cross_entropy(scores, torch.arange(len(PAIRS)))

    return loss, torch.cat([side["input_ids"].flatten() for side in sides]).unique()


@contextlib.contextmanager
def wiped(model: Any, rows: Any) -> Iterator[None]:
    table = model.embeddings.word_embeddings.weight.data
    kept = table.clone()
    table[rows] = 0
    try:
        yield
    finally:
        table.copy_(kept)


def test_words_that_the_data_lack_are_wiped_and_only_the_probe_sees_it(model: Any) -> None:
    loss, known = task(model)
    unknown = torch.tensor(sorted(set(range(30_522)) - set(known.tolist())))
    assert len(known) < 200
    probe = mdl.Probe()
    with torch.no_grad():
        exact, outputs = loss().item(), probe.outputs(model)
        drawn = unknown[torch.randperm(len(unknown), generator=torch.Generator().manual_seed(3))]
        found = {}
        for share in (0.02, 0.5, 1.0):
            with wiped(model, drawn[: int(share * len(drawn))]):
                # No gate on these data sees anything at all.
                assert loss().item() == exact
                found[share] = probe.compare(outputs, model).relative_error
                assert not probe.passes(probe.compare(outputs, model))
        # Noise as the bounds of a first version allow it, on every row of every matrix.
        generator = torch.Generator().manual_seed(4)
        for p in (p for p in model.parameters() if p.dim() > 1):
            noise = torch.randn(p.shape, generator=generator)
            p.add_(0.002 * noise * p.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True))
        bounded = probe.compare(outputs, model)
    assert probe.passes(bounded)
    # The limit stands clear of both.
    assert bounded.relative_error < probe.max_relative_error / 10
    assert min(found[0.5], found[1.0]) > probe.max_relative_error * 3


def test_a_search_that_the_gate_lets_wipe_words_is_held_by_the_probe(model: Any, tmp_path: Path) -> None:
    """Steps go by gradients, and no bound holds: what no gradient reaches is rounded away."""
    loss, known = task(model)
    policy = tmp_path / "blind.toml"
    policy.write_text(
        'try = ["lattice"]\n[keep]\nexact_latest = 0\n[bounds]\nweight = inf\nupdate = inf\nfirst = inf\n'
        f'[[tensor]]\nmatch = "{WORDS}"\nrole = "embedding"\n[[tensor]]\nmatch = "*"\nexact = true\n'
    )
    loss().backward()
    exact = model.get_parameter(WORDS).detach().clone()
    rows = torch.ones(len(exact), dtype=torch.bool)
    rows[known] = False
    errors = {}
    for name, probe in (("blind", None), ("probed", mdl.Probe())):
        compressor = mdl.Compressor(
            model, lambda: loss().item(), repo=tmp_path / name, threshold=0.05, policy=policy, probe=probe, rng=False
        )
        compressor.on_backward_pass_end()
        commit = compressor.compress(1)
        # The gate is content with both.
        assert commit.quality["family"] == "lattice"
        assert commit.quality["measured"] <= commit.quality["limit"]
        stored = compressor.repo.tensor("HEAD", WORDS).torch()
        errors[name] = ((stored - exact)[rows].norm() / exact[rows].norm()).item()
    assert errors["blind"] > 0.8
    assert errors["probed"] < 0.3
    assert 0 < compressor.last_probe.relative_error <= mdl.Probe().max_relative_error
