"""States come back as they were: types, order, bits, shared tensors."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import json
import math
import pathlib
import random
import struct
from argparse import Namespace
from typing import Any, NamedTuple

import mdl
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file
from same import bits, check
from support import scale


def back(repo: mdl.Repo, state: Any, **options: Any) -> Any:
    repo.commit(state, "a state", wait=True)
    return repo.load(**options)


TORCH = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TORCH, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (5, 7), (2, 3, 4)], ids=str)
def test_every_torch_type_and_shape(repo: mdl.Repo, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    n = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (n,), dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)
    state = {"t": tensor, "nested": {"t": tensor.clone()}}
    check(state, back(repo, state))


@pytest.mark.parametrize(
    "dtype",
    ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16", ">f4", ">i8", "g"],
)
def test_every_numpy_type(repo: mdl.Repo, dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    state = {
        "plain": array,
        "fortran": np.asfortranarray(array),
        "scalar": array[0, 0, 1],
        "zero": array[0, 0, 0:0].copy(),
    }
    state["of rank 0"] = np.array(array[0, 0, 2])
    check(state, back(repo, state))


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: float
    y: float


def test_values_that_are_no_tensors(repo: mdl.Repo) -> None:
    nan = struct.unpack("d", struct.pack("Q", 0xFFF8_0000_DEAD_BEEF))[0]
    state = {
        "numbers": [0, -1, 2**63, 2**64, -(2**200), 0.1, -0.0, 5e-324, math.inf, -math.inf, nan, 1e308, True, None],
        "complex": complex(-0.0, math.inf),
        "text": ["", "é\u0000\ud800", "$"],
        "bytes": [b"", b"\x00\xff", bytearray(b"x"), bytes(range(256)) * 40],
        "containers": [(), (1,), [[]], {}, {"$": 1}, {1: "a", (2, "b"): "c", None: 0, 1.5: 1}, {1, 2}, frozenset("ab")],
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "counter": collections.Counter({3: 2, 5: 1}),
        "default": collections.defaultdict(list, {"x": [1]}),
        "deque": collections.deque([1, 2], maxlen=5),
        "torch": [torch.float16, torch.device("cuda:1"), torch.Size([2, 3]), torch.channels_last, torch.strided],
        "numpy": [np.float32(1.5), np.int64(-3), np.bool_(True), np.dtype("<f4"), np.array(["a", "bc"])],
        "path": pathlib.Path("a/b"),
        "times": [
            dt.timedelta(days=-1, microseconds=3),
            dt.datetime(2026, 1, 2, 3, tzinfo=dt.timezone.utc),
            dt.date.min,
        ],
        "enum": Colour.RED,
        "names": Namespace(a=1, b=[torch.ones(2)]),
    }
    got = back(repo, state)
    assert got["names"].b[0].tolist() == [1.0, 1.0]
    state["names"], got["names"] = vars(state["names"]).keys(), vars(got["names"]).keys()
    assert list(state.pop("names")) == list(got.pop("names"))
    check(state, got)


def test_named_tuples_and_unknown_dictionaries_come_back_as_plain_ones(repo: mdl.Repo) -> None:
    class Attributes(dict):  # type: ignore[type-arg]
        pass

    got = back(repo, {"point": Point(1.0, 2.0), "attributes": Attributes(a=torch.ones(1))})
    assert got["point"] == (1.0, 2.0)
    assert got["point"].y == 2.0
    assert got["attributes"] == {"a": torch.ones(1)}
    assert type(got["attributes"]) is dict


def random_value(rng: random.Random, depth: int) -> Any:
    kinds = ["int", "float", "str", "none", "tensor", "array", "bytes"]
    kind = rng.choice(kinds + ["list", "dict", "tuple"] * 2 if depth else kinds)
    n = rng.randrange(4)
    match kind:
        case "int":
            return rng.randrange(-(10**20), 10**20)
        case "float":
            return struct.unpack("d", rng.randbytes(8))[0]
        case "str":
            return "".join(chr(rng.choice([36, 46, 97, 0x20AC, 0x1F600])) for _ in range(n))
        case "tensor":
            shape = [rng.randrange(5) for _ in range(n)]
            return torch.randn(shape).to(rng.choice([torch.float32, torch.bfloat16, torch.int16]))
        case "array":
            return np.frombuffer(rng.randbytes(16 * n), rng.choice(["<f8", "<i2", "<c16"])).copy()
        case "bytes":
            return rng.randbytes(n)
        case "list":
            return [random_value(rng, depth - 1) for _ in range(n)]
        case "tuple":
            return tuple(random_value(rng, depth - 1) for _ in range(n))
        case "dict":
            key = rng.choice([lambda: random_value(rng, 0), lambda: rng.randrange(9)])
            pairs = [(key(), random_value(rng, depth - 1)) for _ in range(n)]
            return {k: v for k, v in pairs if isinstance(k, (str, int, bytes))}
    return None


def test_random_states(repo: mdl.Repo) -> None:
    rng = random.Random(7)
    torch.manual_seed(7)
    for i in range(scale.rounds(20, 60)):
        state = {f"e{j}": random_value(rng, 4) for j in range(4)}
        repo.commit(state, f"state {i}", wait=True)
        check(state, repo.load(), f"state {i}")


def test_names_that_collide_are_kept_apart(repo: mdl.Repo) -> None:
    def one(x: float) -> torch.Tensor:
        return torch.full((2,), x)

    state = {
        "Model": {"a.b": one(1), "a": {"b": one(2)}, "a.b#2": one(3), "__metadata__": one(4)},
        "model": {"a": one(5)},
        "bare": one(6),
        "a/b": {"x": one(7)},
        "a\\b": {"x": one(8)},
        "..": {"x": one(9)},
        "": {"x": one(10)},
        7: {"x": one(11)},
    }
    check(state, back(repo, state))


def test_tied_tensors_are_stored_once_and_come_back_tied(repo: mdl.Repo) -> None:
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(50, 8), "head": torch.nn.Linear(8, 50, bias=False)})
    model["head"].weight = model["embed"].weight
    state = {"model": model.state_dict(), "ema": {"embed.weight": model["embed"].weight.data}}
    got = back(repo, state)
    assert got["model"]["head.weight"].data_ptr() == got["model"]["embed.weight"].data_ptr()
    assert got["ema"]["embed.weight"].data_ptr() == got["model"]["embed.weight"].data_ptr()
    assert [t.name for t in repo.tensors().values()] == ["embed.weight"]
    # As Hugging Face's tools store and load tied weights.
    repo.checkout("HEAD", repo.path / "out")
    other = torch.nn.ModuleDict({"embed": torch.nn.Embedding(50, 8), "head": torch.nn.Linear(8, 50, bias=False)})
    other["head"].weight = other["embed"].weight
    load_model(other, str(repo.path / "out" / "model.safetensors"))
    assert bits(other["embed"].weight) == bits(model["embed"].weight)
    with safe_open(repo.path / "out" / "model.safetensors", "pt") as file:
        assert file.metadata()["head.weight"] == "embed.weight"


def test_what_shares_memory_but_not_values_is_not_tied(repo: mdl.Repo) -> None:
    x = torch.randn(5, dtype=torch.complex64)
    state = {"x": x, "conj": x.conj(), "conj imag": x.conj().imag, "as ints": x.view(torch.int64)}
    got = back(repo, state)
    assert torch.equal(torch.view_as_real(got["x"]), torch.view_as_real(x))
    assert torch.equal(torch.view_as_real(got["conj"]), torch.view_as_real(x.conj().resolve_conj()))
    assert torch.equal(got["conj imag"], -x.imag)
    assert torch.equal(got["as ints"], state["as ints"])

    class Maker:
        def __init__(self, n: int) -> None:
            self.n = n

    # Each makes an array without another reference: the next one may get its address.
    mdl.register(Maker, "tests.Maker", lambda m: np.full((8, 2), m.n).reshape(4, 4).T[:2], lambda a: int(a[0, 0]))
    assert back(repo, {"list": [Maker(i) for i in range(50)]}) == {"list": list(range(50))}


def test_tensors_that_wrap_others_are_refused(repo: mdl.Repo) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    with pytest.raises(mdl.StateError, match="no memory"):
        repo.commit({"t": TwoTensor(torch.ones(4), torch.ones(4))})


def test_states_that_could_not_be_loaded_are_refused_or_load(repo: mdl.Repo) -> None:
    class Blob(bytes):
        pass

    check({"empty": np.str_(""), "blob": b"x"}, back(repo, {"empty": np.str_(""), "blob": Blob(b"x")}))
    layer = torch.nn.Linear(2, 2)
    for bad in [{layer.weight: 1}, {"m": np.ma.masked_array([1, 2], [0, 1])}, np.zeros(1, [("a", "i4")])[0]]:
        with pytest.raises(mdl.StateError):
            repo.commit({"bad": bad})


HOSTILE = [
    {"$": "torch.dtype", "value": "load"},
    {"$": "torch.dtype", "value": "hub"},
    {"$": "tensor", "file": "w.safetensors", "name": "w", "strides": [1 << 40]},
    {"$": "tensor", "file": "w.safetensors", "name": "w", "dtype": "O", "shape": [2], "as": "numpy"},
    {"$": "tensor", "file": "w.safetensors", "name": "w", "dtype": "load", "shape": [2]},
    {"$": "tensor", "file": "w.safetensors", "name": "w", "dtype": "float64", "shape": [1 << 40]},
    {"$": "tensor"},
    {"$": "nothing"},
    {"$": "custom", "type": "os.system", "value": "true"},
    {"$": "namedtuple", "name": "x", "fields": ["class"], "items": [1]},
    {"$": "int"},
]


@pytest.mark.parametrize("node", HOSTILE, ids=str)
def test_a_hostile_document_is_an_error_and_no_more(repo: mdl.Repo, tmp_path: pathlib.Path, node: Any) -> None:
    out = tmp_path / "d"
    out.mkdir()
    save_file({"w": torch.ones(4)}, out / "w.safetensors")
    deep = '{"mdl_state": 1, "root": ' + "[" * 100_000 + "]" * 100_000 + "}"
    for text in (json.dumps({"mdl_state": 1, "root": {"x": node}}), deep):
        (out / "state.json").write_text(text)
        repo.commit_dir(out)
        with pytest.raises(mdl.MdlError):
            repo.load()


def test_parameters_keep_their_kind(repo: mdl.Repo) -> None:
    layer = torch.nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    state = {
        "params": dict(layer.named_parameters()),
        "data": layer.weight.data,
        "leaf": torch.ones(2, requires_grad=True),
    }
    got = back(repo, state)
    assert isinstance(got["params"]["weight"], torch.nn.Parameter)
    assert got["params"]["weight"].requires_grad
    assert not got["params"]["bias"].requires_grad
    assert not got["data"].requires_grad
    assert got["data"].data_ptr() == got["params"]["weight"].data_ptr()
    assert got["leaf"].requires_grad


def test_layouts_in_memory_come_back(repo: mdl.Repo) -> None:
    image = torch.randn(2, 3, 4, 5)
    state = {
        "channels last": image.to(memory_format=torch.channels_last),
        "transposed": torch.randn(3, 4).t(),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    }
    check(state | {"conjugate": state["conjugate"].resolve_conj()}, back(repo, state))
    strided = {"every other": torch.arange(10)[::2], "expanded": torch.ones(3, 1).expand(3, 4)}
    got = back(repo, strided)
    assert got["every other"].tolist() == [0, 2, 4, 6, 8]
    assert torch.equal(got["expanded"], torch.ones(3, 4))


def test_state_dicts_keep_the_versions_of_their_modules(repo: mdl.Repo) -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
    got = back(repo, {"model": model.state_dict()})
    assert got["model"]._metadata == model.state_dict()._metadata
    model.load_state_dict(got["model"])


def test_what_cannot_be_stored_is_named_by_its_place(repo: mdl.Repo) -> None:
    ring: list[Any] = []
    ring.append(ring)
    bad = {
        "objects": object(),
        "functions": len,
        "rings": ring,
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.empty(2, device="meta"),
        "generators": torch.Generator(),
        "object arrays": np.array([object()]),
    }
    for name, value in bad.items():
        with pytest.raises(mdl.StateError, match=r"\['place'\]\[1\]"):
            repo.commit({name: {"place": [0, value]}})
    with pytest.raises(mdl.NotFoundError):
        repo.load()


def test_registered_types(repo: mdl.Repo) -> None:
    class Meter:
        def __init__(self, total: torch.Tensor) -> None:
            self.total = total

    mdl.register(Meter, "tests.Meter", lambda m: {"total": m.total}, lambda d: Meter(d["total"]))
    got = back(repo, {"meters": [Meter(torch.tensor(3.0))]})
    assert got["meters"][0].total == 3.0


def test_files_are_plain_safetensors_and_json(repo: mdl.Repo) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    repo.commit({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}, step=7, wait=True)
    assert sorted(repo.files()) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    repo.checkout("HEAD", repo.path / "out")
    weights = load_file(repo.path / "out" / "model.safetensors")
    check(dict(model.state_dict()), weights)
    moments = load_file(repo.path / "out" / "optimizer.safetensors")
    assert torch.equal(moments["state.0.exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    assert json.loads((repo.path / "out" / "state.json").read_text())["root"]["step"] == 7


def test_parts_of_a_state(repo: mdl.Repo) -> None:
    state = {
        "model": {"a.w": torch.ones(2), "b.w": torch.zeros(2)},
        "optimizer": {"state": {0: {"m": torch.ones(1)}, 1: {"m": torch.ones(1)}}, "groups": [{"lr": 0.1}]},
        "step": 3,
    }
    repo.commit(state, wait=True)
    assert list(repo.load(only="model")) == ["model"]
    check({"model": {"a.w": state["model"]["a.w"]}, "step": 3}, repo.load(only=["model.a*", "step"]))
    assert list(repo.load(only="optimizer.state.0")["optimizer"]["state"]) == [0]
    assert repo.load(only="optimizer.groups") == {"optimizer": {"groups": [{"lr": 0.1}]}}
    with pytest.raises(mdl.NotFoundError, match="'nothing'"):
        repo.load(only="nothing")
    with pytest.raises(mdl.NotFoundError, match=r"did you mean .*model\.a\.w.*\?"):
        repo.load(only="modle.a.w")
    with pytest.raises(mdl.NotFoundError, match=r"did you mean optimizer\b"):
        repo.load(only=["optimiser"])
    repo.commit({"m": {"l": [torch.ones(1), torch.zeros(2)], "t": (torch.ones(3),)}}, wait=True)
    assert [t.shape[0] for t in repo.load(only="m.l.0")["m"]["l"]] == [1, 2]


def test_devices_that_are_not_there(repo: mdl.Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    import mdl.tensors

    original = mdl.tensors.run_of

    def on_a_device(value: Any) -> Any:
        run, said = original(value)
        return run, said | {"device": "cuda:0"}

    monkeypatch.setattr("mdl.state.encoding.run_of", on_a_device)
    repo.commit({"w": torch.ones(2)}, wait=True)
    if not torch.cuda.is_available():
        with pytest.raises(mdl.StateError, match="map_location"):
            repo.load()
    for where in ("cpu", torch.device("cpu"), {"cuda:0": "cpu"}, lambda t, was: t):
        assert repo.load(map_location=where)["w"].device.type == "cpu"


def test_a_document_of_a_newer_version_is_refused(repo: mdl.Repo) -> None:
    (repo.path / "x").mkdir()
    (repo.path / "x" / "state.json").write_text(json.dumps({"mdl_state": 2, "root": {}}))
    repo.commit_dir(repo.path / "x")
    with pytest.raises(mdl.StateError, match="version 2"):
        repo.load()
    (repo.path / "x" / "state.json").write_text("[]")
    repo.commit_dir(repo.path / "x")
    with pytest.raises(mdl.StateError):
        repo.load()
