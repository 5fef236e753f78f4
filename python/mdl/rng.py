"""Saves and restores the state of all random number generators of a training loop, for exact resumption."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from .dtypes import torch_loaded


def rng_state(**generators: Any) -> dict[str, Any]:
    """States of Python's, numpy's and (where torch is loaded) torch's generators, those of all CUDA devices included.

    ``generators`` are further ones by name (`torch.Generator`, `numpy.random.Generator`, `random.Random`): a loader
    that shuffles with its own generator needs it for the same order of data.
    """
    state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state(legacy=False)}
    torch = torch_loaded()
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    if generators:
        state["generators"] = {name: _get(generator) for name, generator in generators.items()}
    return state


def set_rng_state(state: dict[str, Any], **generators: Any) -> None:
    """Puts generators back to where `rng_state` found them.

    Raises:
        KeyError: a generator was named that the state does not hold.
    """
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    if "torch" in state:
        import torch

        torch.set_rng_state(state["torch"].cpu())
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
    for name, generator in generators.items():
        _set(generator, state["generators"][name])


def _get(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()


def _set(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        torch = sys.modules.get("torch")
        generator.set_state(state.cpu() if torch is not None and isinstance(state, torch.Tensor) else state)
