"""SGD and AdamW for compressed weights: one is decoded, updated and encoded again as soon as its gradient is there.

`backward` does it within the backward pass, so that a gradient is gone before the next one comes (LOMO, arXiv
2306.09782); `step` does it afterwards, for gradients that ``loss.backward()`` left. Both compute what torch's
optimizers compute, to the bit.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.optim.sgd import sgd

from ..errors import UsageError
from .moments import Moment, tiles
from .segments import BUFFER
from .weight import Weight

_watching = False


def watch() -> None:
    """From now on a step of an optimizer that holds parameters which have been compressed since is an error."""
    global _watching
    if not _watching:
        register_optimizer_step_pre_hook(_refuse_stale)
        _watching = True


def _refuse_stale(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        if any(getattr(p, "_mdl_compressed", False) for p in group["params"]):
            raise UsageError(
                f"this {type(optimizer).__name__} holds parameters that mdl.nn.compress has replaced",
                "it was made before the model was compressed: make it anew of model.parameters()",
            )


class Fused(Optimizer, ABC):
    """What `SGD` and `AdamW` have in common. The loop is torch's, with ``optimizer.backward(loss)`` in the place of
    ``loss.backward()``."""

    #: Names of the moments of a parameter.
    moments: tuple[str, ...] = ()

    def __init__(self, params: Any, defaults: dict[str, Any], bits: int | str | None) -> None:
        if bits not in (None, "exact", 8, 4):
            raise UsageError(f"moments is {bits!r}", 'there are "exact", 8 and 4 bits')
        self._bits = None if bits in (None, "exact") else int(bits)
        #: Within `backward`: what is done with a gradient that is there.
        self._arrived: Callable[[Tensor, Tensor], None] | None = None
        self._updated = False
        #: Identity of a parameter -> the place of its group.
        self._places: dict[int, int] = {}
        super().__init__(params.parameters() if isinstance(params, nn.Module) else params, defaults)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Asked by `GradScaler.step`: whether it leaves to `step` what it cannot do, once `backward` was there."""
        return self._updated

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        held = weakref.ref(self)

        def arrived(parameter: Tensor) -> None:
            optimizer = held()
            if optimizer is not None and optimizer._arrived is not None and parameter.grad is not None:
                grad, parameter.grad = parameter.grad, None
                optimizer._arrived(parameter, grad)

        for parameter in self.param_groups[-1]["params"]:
            self._places[id(parameter)] = len(self.param_groups) - 1
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(arrived)

    def backward(
        self,
        loss: Tensor,
        *,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scaler: Any = None,
    ) -> Tensor | None:
        """Computes gradients and updates each parameter as soon as its gradient is complete. `step` ends the step.

        Gradients that ``loss.backward()`` has left before are added to, so accumulation over batches is that call for
        all but the last. With ``max_norm`` or ``scaler`` the backward pass is made twice: the first one measures.

        Args:
            loss: A scalar, as for ``loss.backward()``.
            max_norm: Largest norm of all gradients together, as `torch.nn.utils.clip_grad_norm_` has it.
            norm_type: Which norm, for ``max_norm``.
            scaler: A `torch.amp.GradScaler`, which this scales the loss by and tells of infinities. ``scaler.update()``
                is the caller's; ``scaler.step`` is not to be called.

        Returns:
            The norm of all gradients before they were clipped, where ``max_norm`` is given.

        Raises:
            UsageError: a second call before `step`; gradients that are there already, where there are two passes.
        """
        if self._updated:
            raise UsageError(
                "backward() a second time before step()",
                "accumulate by loss.backward() for all batches but the last, which is backward()'s",
            )
        _refuse_stale(self, (), {})
        if max_norm is None and scaler is None:
            self._pass(loss, self._update, retain=False)
            self._updated = True
            return None
        if any(p.grad is not None for p in self._parameters()):
            raise UsageError(
                "gradients are there already, and clipping or scaling needs two passes over them",
                "accumulate by loss.backward(), then clip_grad_norm_ (and scaler.step), or optimizer.step()",
            )
        return self._in_two(loss, max_norm, norm_type, scaler)

    def _in_two(self, loss: Tensor, max_norm: float | None, norm_type: float, scaler: Any) -> Tensor | None:
        norms: dict[int, Tensor] = {}
        unscale = _Unscale(scaler)

        def measure(parameter: Tensor, grad: Tensor) -> None:
            unscale(grad)
            if max_norm is not None:
                norms[id(parameter)] = torch.linalg.vector_norm(grad, norm_type)

        scaled = loss if scaler is None else scaler.scale(loss)
        self._pass(scaled, measure, retain=True)
        self._updated = True
        infinite = unscale.finish()
        total = factor = None
        if max_norm is not None and norms:
            # As torch.nn.utils.clip_grad_norm_ computes them.
            ordered = [norms[id(p)] for p in self._parameters() if id(p) in norms]
            total = torch.linalg.vector_norm(torch.stack([n.to(ordered[0].device) for n in ordered]), norm_type)
            factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
        if infinite:
            return total
        again = _Unscale(scaler)

        def update(parameter: Tensor, grad: Tensor) -> None:
            again(grad)
            self._update(parameter, grad if factor is None else grad.mul_(factor.to(grad.device)))

        self._pass(scaled, update, retain=False)
        return total

    def _pass(self, loss: Tensor, arrived: Callable[[Tensor, Tensor], None], retain: bool) -> None:
        self._arrived = arrived
        try:
            loss.backward(retain_graph=retain)
        finally:
            self._arrived = None

    def _parameters(self) -> Iterable[Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters that have gradients, and ends the step.

        Raises:
            UsageError: called by a `GradScaler`, after `backward` used the gradients.
        """
        if self._updated and hasattr(self, "found_inf"):
            raise UsageError(
                "backward() has updated the weights by gradients that a GradScaler has scaled",
                "optimizer.backward(loss, scaler=scaler), step() and scaler.update(), without scaler.step()",
            )
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for parameter in self._parameters():
            if parameter.grad is not None:
                self._update(parameter, parameter.grad)
        self._updated = False
        return result

    @torch.no_grad()
    def _update(self, parameter: Tensor, grad: Tensor) -> None:
        group = self.param_groups[self._places[id(parameter)]]
        state = self.state[parameter]
        store = parameter.store if isinstance(parameter, Weight) else None
        values = parameter.data if store is None else BUFFER.decoded(store)
        if not state:
            self._start(state, values)
        flat, gradient = values.view(-1), grad.reshape(-1)
        for index, part in enumerate(tiles(flat.numel())):
            kept = [state[name].read(index) for name in self.moments if name in state]
            self._compute(group, state, flat[part], gradient[part], kept)
            for name, value in zip([n for n in self.moments if n in state], kept, strict=True):
                state[name].write(index, value)
        self._counted(state)
        if store is not None:
            store.encode(values)
            BUFFER.changed(store)

    def _start(self, state: dict[str, Any], like: Tensor) -> None:
        for name in self.moments:
            state[name] = Moment(name, like, self._bits)

    def _counted(self, state: dict[str, Any]) -> None:
        """One more step was made."""

    @abstractmethod
    def _compute(
        self, group: dict[str, Any], state: dict[str, Any], values: Tensor, grad: Tensor, kept: list[Tensor]
    ) -> None:
        """Updates a tile's elements, and its moments, in place."""

    def state_bytes(self) -> int:
        """Bytes that the moments take."""
        return sum(v.nbytes for state in self.state.values() for v in state.values() if isinstance(v, Moment))

    def state_dict(self) -> dict[str, Any]:
        """As torch's optimizer of the same name has it: moments are plain tensors."""
        found = super().state_dict()
        found["state"] = {
            key: {k: v.dense() if isinstance(v, Moment) else v for k, v in state.items()}
            for key, state in found["state"].items()
        }
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state, torch's of the same optimizer too."""
        super().load_state_dict({**state_dict, "state": {}})
        order = [p for group in self.param_groups for p in group["params"]]
        numbers = [i for group in state_dict["param_groups"] for i in group["params"]]
        self.state.clear()
        for number, parameter in zip(numbers, order, strict=True):
            if number in state_dict["state"]:
                self._load(self.state[parameter], parameter, state_dict["state"][number])

    def _load(self, state: dict[str, Any], parameter: Tensor, saved: dict[str, Any]) -> None:
        like = torch.empty(0, dtype=parameter.dtype, device=parameter.device).expand(0)
        for name, value in saved.items():
            if name in self.moments and value is not None:
                state[name] = Moment(name, _shaped(parameter, like), self._bits)
                state[name].load(value)
            elif name not in self.moments:
                state[name] = value.clone() if isinstance(value, Tensor) else value


def _shaped(parameter: Tensor, like: Tensor) -> Tensor:
    return torch.empty((), dtype=like.dtype, device=like.device).expand(tuple(parameter.shape))


class SGD(Fused):
    """`torch.optim.SGD` for compressed weights: the same arguments, and ``moments``, in which the momentum is kept.

    Args:
        params: The model, or parameters and groups as torch's optimizers take them.
        moments: ``"exact"``, or 8 or 4 bits an element.

    Raises:
        UsageError: arguments that make no sense.
    """

    moments = ("momentum_buffer",)

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        moments: int | str = "exact",
    ) -> None:
        if min(lr, momentum, weight_decay) < 0 or (nesterov and (momentum <= 0 or dampening != 0)):
            raise UsageError(
                f"lr={lr}, momentum={momentum}, weight_decay={weight_decay}, nesterov={nesterov}",
                "none is negative, and nesterov needs momentum without dampening",
            )
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults, moments)

    def _start(self, state: dict[str, Any], like: Tensor) -> None:
        # The first gradient becomes the momentum, which `_compute` then finds fresh.
        state["fresh"] = True

    def _update(self, parameter: Tensor, grad: Tensor) -> None:
        group = self.param_groups[self._places[id(parameter)]]
        state = self.state[parameter]
        if group["momentum"] != 0 and "momentum_buffer" not in state:
            state["fresh"] = True
            state["momentum_buffer"] = Moment("momentum_buffer", _shaped(parameter, grad), self._bits)
        super()._update(parameter, grad)

    def _counted(self, state: dict[str, Any]) -> None:
        state["fresh"] = False

    def _compute(
        self, group: dict[str, Any], state: dict[str, Any], values: Tensor, grad: Tensor, kept: list[Tensor]
    ) -> None:
        buffers: list[Tensor | None] = [kept[0] if kept and not state["fresh"] else None]
        names = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
        sgd([values], [grad], buffers, foreach=False, fused=False, **{name: group[name] for name in names})
        if kept and state["fresh"] and buffers[0] is not None:
            kept[0].copy_(buffers[0])

    def state_dict(self) -> dict[str, Any]:
        found = super().state_dict()
        found["state"] = {
            key: {k: v for k, v in state.items() if k != "fresh"} for key, state in found["state"].items()
        }
        return found

    def _load(self, state: dict[str, Any], parameter: Tensor, saved: dict[str, Any]) -> None:
        super()._load(state, parameter, saved)
        state["fresh"] = "momentum_buffer" not in state


class AdamW(Fused):
    """`torch.optim.AdamW` for compressed weights: the same arguments, and ``moments``, in which both are kept.

    Args:
        params: The model, or parameters and groups as torch's optimizers take them.
        moments: ``"exact"``, or 8 or 4 bits an element.

    Raises:
        UsageError: arguments that make no sense.
    """

    moments = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        moments: int | str = "exact",
    ) -> None:
        if min(lr, eps, weight_decay) < 0 or not all(0 <= beta < 1 for beta in betas):
            raise UsageError(
                f"lr={lr}, betas={betas}, eps={eps}, weight_decay={weight_decay}",
                "none is negative, and betas are below 1",
            )
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults, moments)

    def _start(self, state: dict[str, Any], like: Tensor) -> None:
        state["step"] = torch.tensor(0.0, dtype=torch.float32)
        super()._start(state, like)

    def _counted(self, state: dict[str, Any]) -> None:
        state["step"] += 1

    def _compute(
        self, group: dict[str, Any], state: dict[str, Any], values: Tensor, grad: Tensor, kept: list[Tensor]
    ) -> None:
        beta1, beta2 = group["betas"]
        names = ("lr", "weight_decay", "eps", "maximize")
        adamw(
            [values], [grad], [kept[0]], [kept[1]], [], [state["step"].clone()], foreach=False, fused=False,
            amsgrad=False, beta1=beta1, beta2=beta2, **{name: group[name] for name in names},
        )  # fmt: skip


class _Unscale:
    """Divides gradients by a scaler's scale and looks for infinities, as `GradScaler.unscale_` does."""

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        if self._scaler is not None:
            scale = torch.tensor(self._scaler.get_scale(), dtype=torch.float64)
            self._inverse, self._found = scale.reciprocal().float(), torch.zeros(())

    def __call__(self, grad: Tensor) -> None:
        if self._scaler is not None:
            self._inverse, self._found = self._inverse.to(grad.device), self._found.to(grad.device)
            torch._amp_foreach_non_finite_check_and_unscale_([grad], self._found, self._inverse)

    def finish(self) -> bool:
        """Tells the scaler, by an optimizer of one number; whether there were infinities."""
        if self._scaler is None:
            return False
        infinite = bool(self._found.item())
        probe = torch.zeros(1, device=self._found.device, requires_grad=True)
        probe.grad = torch.full_like(probe, float("inf") if infinite else 0.0)
        stand_in = torch.optim.SGD([probe], lr=0.0)
        self._scaler.unscale_(stand_in)
        self._scaler.step(stand_in)
        return infinite
