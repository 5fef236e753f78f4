"""Moving average of gradients, on the host: the sensitivities by which a search prunes and protects weights.

Source: Inshrinkerator, section 4.5: EMA = beta * g + (1 - beta) * EMA with beta = 0.9, of the gradient itself, its sign
kept (the sensitivity |g * w| is taken of the average). Gradients are copied into pinned memory asynchronously, and
averaged there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

Grads = dict[str, "Tensor | None"]


class GradientAverage:
    """The average of each parameter's gradient, f32, in host memory, shaped as the parameter.

    The first gradient is the first average; a missing gradient counts as zeros. A batch with a gradient that is not
    finite (a step that a loss scaler skips) is left out. Costs 4 bytes an element, and on a GPU as many pinned bytes as
    the gradients have; both stay allocated.
    """

    def __init__(self, parameters: Mapping[str, Tensor], beta: float = 0.9, lane: CudaLane | None = None) -> None:
        self._parameters = {name: p for name, p in parameters.items() if p.is_floating_point()}
        self._beta = beta
        if lane is None and any(p.is_cuda for p in self._parameters.values()):
            lane = CudaLane()
        self._lane = lane
        self._pool = ThreadPoolExecutor(1, "mdl-gradients") if lane is not None else None
        self._under_way: Future[None] | None = None
        self._means: dict[str, Tensor] = {}
        self._known: set[str] = set()
        self._samples = 0

    def take(self) -> None:
        """Averages the gradients that the parameters have now in. On a GPU it returns when the copies are queued."""
        grads: Grads = {name: _plain(p.grad) for name, p in self._parameters.items()}
        if self._lane is None or self._pool is None:
            self._fold({name: None if g is None else g.cpu() for name, g in grads.items()})
            return
        # The pinned buffers hold the batch before until it is averaged in.
        self._settle()
        self._under_way = self._pool.submit(self._arrive, self._lane.start(grads))

    @property
    def samples(self) -> int:
        """Batches that are in the average."""
        self._settle()
        return self._samples

    def tensors(self) -> dict[str, Tensor]:
        """The averages by parameter, of those that had a gradient. They are the buffers themselves: read them before
        the next batch.
        """
        self._settle()
        return {name: self._means[name] for name in self._parameters if name in self._known}

    def names(self) -> list[str]:
        """All parameters that could have an average."""
        return list(self._parameters)

    def reset(self) -> None:
        """Resets the average, in the same memory."""
        self._settle()
        self._known.clear()
        self._samples = 0

    def _settle(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def _arrive(self, wait: Callable[[], Grads | None]) -> None:
        host = wait()
        if host is not None:
            self._fold(host)

    def _fold(self, grads: Grads) -> None:
        if not _finite(g for g in grads.values() if g is not None):
            return
        for name, grad in grads.items():
            if grad is not None:
                self._step(name, grad)
            elif name in self._known:
                self._means[name].mul_(1 - self._beta)
        self._samples += 1

    def _step(self, name: str, grad: Tensor) -> None:
        if name in self._known:
            self._means[name].lerp_(grad.float(), self._beta)
            return
        if name not in self._means:
            self._means[name] = torch.empty(grad.shape, dtype=torch.float32, device="cpu")
        mean = self._means[name].copy_(grad)
        if self._samples:
            mean.mul_(self._beta)
        self._known.add(name)


def _plain(grad: Tensor | None) -> Tensor | None:
    if grad is None:
        return None
    grad = grad.detach()
    return grad.to_dense() if grad.layout != torch.strided else grad


def _finite(grads: Iterable[Tensor]) -> bool:
    # One pass over each; a sum of gradients beyond 3e38 is no better than infinity. Half precision would overflow.
    return math.isfinite(sum(float(g.sum(dtype=torch.float32)) for g in grads))


class CudaLane:
    """Copies from a GPU to pinned memory, on a stream of their own.

    The copies overlap what the training does next. Gradients that are freed (``zero_grad(set_to_none=True)``, the
    default) are held until they are copied. Where a loop zeroes them in place instead, the batch in which that is seen
    is left out, and from then on the training's stream waits for the copies.
    """

    def __init__(self) -> None:
        self._streams: dict[Any, Any] = {}
        self._pinned: dict[str, Tensor] = {}
        self._careful = False

    def start(self, grads: Grads) -> Callable[[], Grads | None]:
        """Queues the copies; what comes back waits for them and gives them, or None if they cannot be trusted."""
        names = list(grads)
        held = {name: g for name, g in grads.items() if g is not None}
        versions = {name: g._version for name, g in held.items()}
        host = {name: self._buffer(name, g) for name, g in held.items()}
        events = [
            self.queue(device, [(host[name], g) for name, g in held.items() if g.device == device])
            for device in {g.device for g in held.values()}
        ]

        def wait() -> Grads | None:
            for event in events:
                event.synchronize()
            changed = any(g._version != versions[name] for name, g in held.items())
            # From here on the allocator may reuse the gradients' memory.
            held.clear()
            if changed and not self._careful:
                self._careful = True
                return None
            return {name: host.get(name) for name in names}

        return wait

    def _buffer(self, name: str, grad: Tensor) -> Tensor:
        if name not in self._pinned:
            self._pinned[name] = self.buffer(grad)
        return self._pinned[name]

    def buffer(self, grad: Tensor) -> Tensor:
        """Where a gradient goes on the host."""
        # In the gradient's own memory layout: any other would be permuted on the GPU first.
        return torch.empty_like(grad, device="cpu", pin_memory=True)

    def queue(self, device: torch.device, copies: list[tuple[Tensor, Tensor]]) -> Any:
        """Queues copies (to, from) behind what the training queued so far; the event says when they are done."""
        if device.type != "cuda":
            for to, grad in copies:
                to.copy_(grad)
            return _Done()
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        stream = self._streams[device]
        training = torch.cuda.current_stream(device)
        stream.wait_stream(training)
        with torch.cuda.stream(stream):
            for to, grad in copies:
                to.copy_(grad, non_blocking=True)
        event = stream.record_event()
        if self._careful:
            training.wait_event(event)
        return event


class _Done:
    """The event of copies that need no waiting for."""

    def synchronize(self) -> None:
        """Nothing."""
