"""Random inputs for a model, made up from its configuration."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UsageError

#: One run of a model: its positional and its named arguments.
Call = tuple[tuple[Any, ...], dict[str, Any]]

#: Names that configurations have for how many positions a text may have.
_POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length", "block_size")
#: Positions of a text where the configuration does not say.
_USUAL = 512


def made_up(model: nn.Module, rows: int, longest: int, generator: torch.Generator) -> list[Call]:
    """Runs of one row each: token ids at every position up to ``longest``, or an image of noise.

    Raises:
        UsageError: the model's configuration does not tell what it takes.
    """
    config = getattr(model, "config", None)
    main = getattr(model, "main_input_name", "input_ids")
    size, vocabulary = _said(config, "vision_config", "image_size"), _said(config, "text_config", "vocab_size")
    if main == "pixel_values" and size is not None:
        height, width = (size, size) if isinstance(size, int) else size
        shape = (1, _said(config, "vision_config", "num_channels") or 3, height, width)
        return [((), {main: torch.randn(shape, generator=generator)}) for _ in range(rows)]
    if main != "input_ids" or vocabulary is None:
        raise cannot(model, "its configuration has no vocab_size or image_size that its main input goes by")
    length = min(longest, _positions(model, config))
    ids = _tokens(vocabulary, rows, length, generator)
    decoded = _tokens(vocabulary, rows, length, generator) if getattr(config, "is_encoder_decoder", False) else None
    names = inspect.signature(model.forward).parameters
    return [_call(names, ids[i : i + 1], None if decoded is None else decoded[i : i + 1]) for i in range(rows)]


def cannot(model: nn.Module, why: str) -> UsageError:
    """The error for a model whose inputs cannot be made up."""
    hint = "say how: mdl.Probe(inputs=lambda generator: torch.randint(1000, (4, 128), generator=generator))"
    return UsageError(f"no random inputs can be made up for {type(model).__name__}: {why}", hint)


def _said(config: Any, part: str, name: str) -> Any:
    """What a configuration, or that part of it, says."""
    value = getattr(config, name, None)
    return value if value is not None else getattr(getattr(config, part, None), name, None)


def _positions(model: nn.Module, config: Any) -> int:
    said = (_said(config, "text_config", name) for name in _POSITIONS)
    positions = next((n for n in said if isinstance(n, int) and n > 0), _USUAL)
    for module in model.modules():
        # RoBERTa's positions begin behind that of padding.
        if isinstance(module, nn.Embedding) and module.num_embeddings == positions and module.padding_idx is not None:
            return positions - module.padding_idx - 1
    return positions


def _tokens(vocabulary: int, rows: int, length: int, generator: torch.Generator) -> Tensor:
    """Ids, none more than once before all others: plain draws would repeat some and so reach fewer."""
    rounds = -(-rows * length // vocabulary)
    ids = torch.cat([torch.randperm(vocabulary, generator=generator) for _ in range(rounds)])
    return ids[: rows * length].view(rows, length)


def _call(names: Any, ids: Tensor, decoded: Tensor | None) -> Call:
    named: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "decoder_input_ids": decoded}
    # What a model caches for generation takes memory.
    named["use_cache"] = False
    named = {name: value for name, value in named.items() if name in names and value is not None}
    # Others than Hugging Face's call it something else.
    return ((), {"input_ids": ids, **named}) if "input_ids" in names else ((ids,), named)
