"""`mdl.Probe`: random inputs, how far outputs are apart, and what a search does about it. All models here are small."""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Any

import mdl
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
from mdl.loop.inputs import made_up  # noqa: E402

torch.set_num_threads(1)
WORDS, PLACES = 96, 24


class Words(nn.Module):
    """Token and position embeddings, and a head; its configuration is as Hugging Face's."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(vocab_size=WORDS, max_position_embeddings=PLACES, **more)
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Embedding(PLACES, 32)
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 40)
        self.seen: list[Any] = []

    def forward(self, input_ids: Any, attention_mask: Any = None) -> dict[str, Any]:
        self.seen.append(input_ids)
        x = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        x = self.norm(self.drop(x).movedim(-1, 1)).movedim(1, -1)
        return {"hidden": x, "logits": self.head(x)}


def apart(probe: mdl.Probe, exact: Any, changed: Any) -> Any:
    return probe.compare(probe.outputs(exact), changed)


def pair(**more: Any) -> tuple[Words, Words]:
    torch.manual_seed(0)
    a, b = Words(**more), Words(**more)
    b.load_state_dict(a.state_dict())
    return a, b


def test_it_gives_the_relative_error_and_the_divergence_of_logits() -> None:
    a, b = pair()
    assert apart(mdl.Probe(), a, b) == mdl.probe.Probed(0.0, 0.0)
    b.head.weight.data[3] *= 1.5
    found = apart(mdl.Probe(), a, b)
    a.eval(), b.eval()
    e, c = (torch.cat([model(ids)["logits"][0].detach() for ids in a.seen[:4]]).double() for model in (a, b))
    assert found.relative_error == pytest.approx(float((c - e).norm() / e.norm()), rel=1e-5)
    divergence = nn.functional.kl_div(c.log_softmax(1), e.log_softmax(1), reduction="batchmean", log_target=True)
    assert found.kl == pytest.approx(float(divergence), rel=1e-4)


def test_it_disturbs_nothing_and_draws_the_same_for_a_step() -> None:
    a, _ = pair()
    a.norm.eval()
    before = [t.clone() for t in a.state_dict().values()]
    modes, drawn = [m.training for m in a.modules()], mdl.rng_state()
    probe = mdl.Probe()
    exact = probe.outputs(a, 7)
    assert probe.compare(exact, a).relative_error == 0
    assert all(torch.equal(x, y) for x, y in zip(before, a.state_dict().values(), strict=True))
    assert [m.training for m in a.modules()] == modes
    assert torch.equal(mdl.rng_state()["torch"], drawn["torch"])
    assert not any(p.grad is not None for p in a.parameters())
    other = mdl.Probe().outputs(a, 8)
    assert not torch.equal(exact.rows[0][0], other.rows[0][0])


def test_made_up_texts_have_every_word_and_place() -> None:
    a, b = pair()
    probe = mdl.Probe(rows=4)
    exact = probe.outputs(a)
    ids = torch.cat(a.seen)
    assert ids.shape == (4, PLACES)
    assert sorted(ids.flatten().tolist()) == list(range(WORDS))
    # Each word, and each place, is seen by itself.
    for table in (b.words.weight.data, b.places.weight.data):
        for row in (0, 11, len(table) - 1):
            kept = table[row].clone()
            table[row] = 0
            assert probe.compare(exact, b).relative_error > 0.01
            table[row] = kept


def test_images_and_inputs_of_ones_own() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(3, 6, 3)
    with pytest.raises(mdl.UsageError, match="no random inputs can be made up for Conv2d") as told:
        mdl.Probe().outputs(model)
    assert "inputs=" in str(told.value)
    own = mdl.Probe(lambda generator: torch.randn(2, 3, 8, 8, generator=generator), class_axis=1)
    changed = nn.Conv2d(3, 6, 3)
    found = apart(own, model, changed)
    assert found.relative_error > 0.5
    assert found.kl > 0
    model.config, model.main_input_name = types.SimpleNamespace(image_size=8, num_channels=3), "pixel_values"
    (((), named),) = made_up(model, 1, 512, torch.Generator())
    assert named["pixel_values"].shape == (1, 3, 8, 8)


def test_half_precision_and_masked_classes_can_be_compared() -> None:
    a, b = pair()
    for model in (a, b):
        model.head.bias.data[5] = -math.inf
        model.bfloat16()
    found = apart(mdl.Probe(), a, b)
    assert (found.relative_error, found.kl) == (0, 0)
    b.words.weight.data[: WORDS // 2] = 0
    found = apart(mdl.Probe(), a, b)
    assert 0.2 < found.relative_error < 2
    assert math.isfinite(found.kl)


@pytest.mark.parametrize(
    "wrong", [{"max_relative_error": 0}, {"max_kl": math.nan}, {"rows": 0}, {"longest": 0}], ids=lambda w: next(iter(w))
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(mdl.UsageError):
        mdl.Probe(**wrong)


def test_a_model_without_floats_or_inputs_is_refused_when_the_compressor_is_made(tmp_path: Path) -> None:
    with pytest.raises(mdl.UsageError, match="no random inputs"):
        mdl.Compressor(nn.Linear(2, 2), lambda: 1.0, repo=tmp_path, probe=True)
    with pytest.raises(mdl.UsageError, match="no tensor of floating point"):
        mdl.Probe(lambda _: torch.ones(1)).outputs(Whole())


def test_outputs_of_other_shapes_cannot_be_compared() -> None:
    own = mdl.Probe(lambda generator: torch.randn(8, 4, generator=generator))
    with pytest.raises(ValueError, match=r"the shapes \[8, 4\] and \[8, 5\]"):
        apart(own, nn.Linear(4, 4), nn.Linear(4, 5))


class Whole(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.long()


def trained(repo: Path, probe: Any) -> tuple[mdl.Compressor, mdl.Commit]:
    """A version whose gate lets anything pass."""
    model, _ = pair()
    compressor = mdl.Compressor(model, lambda: 1.0, repo=repo, threshold=0.5, probe=probe, rng=False)
    return compressor, compressor.compress(3)


def test_a_candidate_within_the_limits_is_committed_with_them(tmp_path: Path) -> None:
    compressor, commit = trained(tmp_path, True)
    assert commit.quality["family"] == "lattice"
    assert 0 < compressor.last_probe.relative_error < 0.2
    assert 0 < compressor.last_probe.kl < 0.05
    assert commit.meta == {"mdl.probe.max_relative_error": "0.2", "mdl.probe.max_kl": "0.05"}


def test_without_a_candidate_within_the_limits_every_bit_is_kept(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"every bit is kept: the probe refused [1-9]\d* of"):
        compressor, commit = trained(tmp_path, mdl.Probe(max_relative_error=1e-12))
    assert commit.quality["family"] == "lossless"
    assert compressor.last_probe is None
    assert commit.fidelity == "exact"


def test_a_model_that_gives_nan_cannot_be_probed(tmp_path: Path) -> None:
    model, _ = pair()
    model.places.weight.data[-1] = math.nan
    compressor = mdl.Compressor(model, lambda: 1.0, repo=tmp_path, threshold=0.5, probe=True, rng=False)
    with pytest.warns(RuntimeWarning, match="gives NaN for random inputs"):
        commit = compressor.compress(1)
    assert commit.quality["family"] == "lossless"
