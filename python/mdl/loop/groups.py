"""Policy rules from the module tree: the layer type of each parameter, since types of layers are pruned apart.

Names and shapes alone (what `mdl commit` uses) cannot tell a position embedding from a projection; modules can.

Source: Inshrinkerator, section 4.2 ("per-layer type"). Rules are those of docs/policies.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

#: What a role is where its tensors are few and sensitive: such parameters keep every bit.
EXACT = "exact"
#: Smaller tensors, and those of one axis, are kept exact without a rule; with one they would be weights.
FEW = 1024
_NORMS = (nn.LayerNorm, nn.GroupNorm, _NormBase, nn.RMSNorm)
_MATRICES = (nn.Linear, nn.Bilinear, nn.RNNBase, nn.RNNCellBase)
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_OTHER_PART = re.compile(r"mlp|feedforward|ffn|expert|moe(?![a-z])", re.IGNORECASE)
_NORM = re.compile(r"norm", re.IGNORECASE)
#: Parts of names by which a policy's `[optimizer]` knows moments.
_MOMENTS = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "momentum_buffer"}


class Stored(NamedTuple):
    """A tensor of a state: the stem of the file that it goes to, its name there, its shape."""

    stem: str
    name: str
    shape: tuple[int, ...]


def roles(model: nn.Module) -> dict[str, str]:
    """Role of each parameter by its first name: ``embedding``, ``conv``, ``attention``, ``linear``, ``norm``, ``bias``.

    A head that is tied to an embedding is one name, and an embedding; an untied one with the shape of the largest
    table too. Parameters of modules that nothing is known of are left out: their names decide.
    """
    by_path = dict(model.named_modules())
    tables = [m.weight for m in by_path.values() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))]
    tied, head = {id(t) for t in tables}, max(tables, key=Tensor.numel, default=None)
    found = {}
    for name, parameter in model.named_parameters():
        path, _, last = name.rpartition(".")
        role = "embedding" if id(parameter) in tied else _role(_up(by_path, path), last, parameter, head)
        if role is not None:
            found[name] = role
    return found


def _up(by_path: Mapping[str, nn.Module], path: str) -> list[nn.Module]:
    """The modules above a parameter, nearest first, without the containers of parametrised weights."""
    found = []
    while True:
        module = by_path[path]
        if not isinstance(module, nn.utils.parametrize.ParametrizationList | nn.ModuleDict):
            found.append(module)
        if not path:
            return found
        path = path.rpartition(".")[0]


def _role(above: list[nn.Module], last: str, parameter: Tensor, head: Tensor | None) -> str | None:
    if not above:
        return None
    owner = above[0]
    kind = type(owner).__name__
    if last == "bias" or last.startswith("bias_"):
        return "bias"
    if isinstance(owner, _NORMS) or (parameter.dim() == 1 and _NORM.search(kind)):
        return "norm"
    if isinstance(owner, _ConvNd):
        return "conv"
    if isinstance(owner, nn.MultiheadAttention):
        return "attention"
    # transformers' Conv1D is a transposed matrix.
    if not isinstance(owner, _MATRICES) and kind not in ("Conv1D", "NonDynamicallyQuantizableLinear"):
        return None
    if head is not None and parameter.shape == head.shape and head.shape[0] > head.shape[1]:
        return "embedding"
    return "attention" if _in_attention(above[1:]) else "linear"


def _in_attention(above: Iterable[nn.Module]) -> bool:
    """Whether the nearest module that says what it is for is an attention: blocks have both kinds below them."""
    for module in above:
        kind = type(module).__name__
        if _OTHER_PART.search(kind):
            return False
        if _ATTENTION.search(kind) and "block" not in kind.lower():
            return True
    return False


def rules(model: nn.Module, stored: Iterable[Stored]) -> str:
    """Rules (TOML, to stand behind a policy's text) for the tensors that a state stores.

    Parameters get the roles of the module tree. What is no parameter of the model is kept exact, since no measurement
    would see it change: buffers, further entries of the state, and of an optimizer what is no moment.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    by_id = {id(parameters[name]): role for name, role in roles(model).items()}
    wanted: dict[str, str | None] = {}
    beside: dict[str, dict[str, str | None]] = {}
    for one in stored:
        full, small = f"{one.stem}.safetensors:{one.name}", len(one.shape) < 2 or math.prod(one.shape) < FEW
        if one.stem != "model":
            moment = _MOMENTS & set(re.split(r"[.|/:]", one.name))
            beside.setdefault(one.stem, {})[full] = None if small or moment else EXACT
            continue
        role = by_id.get(id(parameters[one.name])) if one.name in parameters else EXACT
        wanted[full] = None if small else EXACT if role in ("norm", "bias") else role
    for stem, said in beside.items():
        if any(_MOMENTS & set(full.split(".")) for full in said):
            wanted |= said
        else:
            wanted[f"{stem}.safetensors:*"] = EXACT
    return "".join(_rule(pattern, said) for pattern, said in _collapsed(wanted))


def _rule(pattern: str, said: str) -> str:
    text = pattern.replace("\\", "\\\\").replace('"', '\\"')
    return f'\n[[tensor]]\nmatch = "{text}"\n' + ("exact = true\n" if said == EXACT else f'role = "{said}"\n')


def _collapsed(wanted: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Patterns for names: one for all layers of a stack where it matches no tensor of which something else is said."""
    families: dict[str, list[str]] = {}
    for full in wanted:
        families.setdefault(re.sub(r"(?<=[.:])\d+(?=\.)", "*", full), []).append(full)
    for family, members in families.items():
        said = {wanted[full] for full in members}
        if len(members) > 1 and len(said) == 1:
            regex = re.compile(".*".join(re.escape(part) for part in family.split("*")), re.DOTALL)
            said = {wanted[full] for full in wanted if regex.fullmatch(full)}
        if said == {None}:
            continue
        if len(members) > 1 and len(said) == 1:
            yield "*".join(_literal(part) for part in family.split("*")), str(said.pop())
        else:
            each = ((full, wanted[full]) for full in members)
            yield from ((full if full.endswith(":*") else _literal(full), one) for full, one in each if one)


def _literal(name: str) -> str:
    """A name as a glob that matches it alone."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", name)
