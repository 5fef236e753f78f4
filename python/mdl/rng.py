"""The random number generators of this process, as one state that can be committed and set again.

Talks to `random`, numpy and, where it is loaded already, torch. It knows nothing of repositories, loops or data loaders.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

RngState = dict[str, Any]


def capture() -> RngState:
    """The state of every global generator: Python's, numpy's, and torch's (CPU, CUDA, MPS) if torch is loaded.

    Returns arrays and numbers only, as `Repo.commit` takes them: `python` (625 words, uint32) and `numpy` (624 words,
    uint32) with their positions; `torch` (bytes, uint8); `cuda`, one tensor per device; `mps`. About 10 KB in all.
    """
    version, words, gauss = random.getstate()
    state: RngState = {
        "python": {"version": version, "words": np.array(words, dtype=np.uint32), "gauss": gauss},
        "numpy": np.random.get_state(legacy=False),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        # An uninitialised device has drawn nothing yet; asking for its state would start it.
        if torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
        if torch.backends.mps.is_available():
            state["mps"] = torch.mps.get_rng_state()
    return state


def restore(state: RngState) -> None:
    """Sets every generator that `state` has to where `capture` found it.

    Devices that are not here any more are left out: fewer GPUs cannot draw what more of them drew.
    """
    python = state["python"]
    words = tuple(int(word) for word in np.asarray(python["words"]))
    random.setstate((python["version"], words, python["gauss"]))
    np.random.set_state(_numpy_state(state["numpy"]))
    if "torch" not in state:
        return
    import torch

    torch.set_rng_state(_bytes(state["torch"]))
    if "cuda" in state and torch.cuda.is_available():
        for device, words in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_bytes(words), device)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(_bytes(state["mps"]))


def _numpy_state(state: RngState) -> RngState:
    """numpy's own dictionary again, whatever kind of array its words came back as."""
    key = np.asarray(state["state"]["key"], dtype=np.uint32)
    return {**state, "state": {**state["state"], "key": key}}


def _bytes(words: Any) -> Any:
    """A generator's state as torch takes it: bytes, on the CPU, wherever they were loaded to."""
    import torch

    return torch.as_tensor(words, dtype=torch.uint8).cpu()
