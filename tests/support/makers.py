"""Makes checkpoint files of every container and the odd and hostile cases, small and deterministic."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .tensors import CODE_OF, Tensor, bf16_round, header_bytes, safetensors_bytes, write_safetensors

STORAGE_OF = {
    "F64": "DoubleStorage",
    "F32": "FloatStorage",
    "F16": "HalfStorage",
    "BF16": "BFloat16Storage",
    "I64": "LongStorage",
    "I32": "IntStorage",
    "U8": "ByteStorage",
    "BOOL": "BoolStorage",
}


def random_f32(shape: tuple[int, ...], seed: int, std: float = 0.02) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * std).astype(np.float32)


def small_model(seed: int, layers: int = 4, width: int = 96) -> list[Tensor]:
    """A small network with one matrix and one bias per layer (about 37 KiB a layer)."""
    out = []
    for i in range(layers):
        out.append(Tensor.of(f"layers.{i}.weight", random_f32((width, width), seed * 1000 + i)))
        out.append(Tensor.of(f"layers.{i}.bias", random_f32((width,), seed * 1000 + 500 + i)))
    return out


def write_small_checkpoint(folder: Path, seed: int, layers: int = 4, width: int = 96) -> Path:
    """A folder as a training loop leaves it: weights, a config and a text file."""
    write_safetensors(folder / "model.safetensors", small_model(seed, layers, width), {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({"layers": layers, "width": width, "seed": seed}) + "\n")
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "notes" / "run.txt").write_text(f"run {seed}\n")
    return folder


# --- PyTorch zip archives, without torch -----------------------------------------------------------------------------


def noise(folder: Path, size: int, seed: int) -> Path:
    """A checkpoint that no coder can shrink."""
    bits = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    write_safetensors(folder / "model.safetensors", [Tensor.of("noise", bits)])
    return folder


@dataclass(frozen=True)
class Storage:
    """A torch storage: elements that several tensors may look at."""

    key: str
    dtype: str
    data: bytes
    numel: int

    @staticmethod
    def of(key: str, array: np.ndarray) -> Storage:
        return Storage(key, CODE_OF[array.dtype], np.ascontiguousarray(array).tobytes(), array.size)


@dataclass(frozen=True)
class View:
    """A torch tensor: shape and strides over a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @staticmethod
    def whole(storage: Storage, shape: tuple[int, ...]) -> View:
        stride, step = [], 1
        for n in reversed(shape):
            stride.append(step)
            step *= n
        return View(storage, 0, shape, tuple(reversed(stride)))


@contextmanager
def fake_torch() -> Iterator[types.ModuleType]:
    """Modules of torch's names for as long as something is pickled, so that the pickle says `torch._utils ...`."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2(*_: Any) -> None:
        raise AssertionError("never called")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    torch._utils = utils  # type: ignore[attr-defined]
    for name in STORAGE_OF.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    saved = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules |= {"torch": torch, "torch._utils": utils}
    try:
        yield torch
    finally:
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def torch_pickle(state: Any) -> tuple[bytes, list[Storage]]:
    """`data.pkl` of a state made of views, and the storages it names, each once and in order."""
    used: OrderedDict[str, Storage] = OrderedDict()
    buffer = io.BytesIO()
    with fake_torch() as torch:

        class Pickler(pickle.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                if not isinstance(obj, Storage):
                    return None
                used[obj.key] = obj
                return ("storage", getattr(torch, STORAGE_OF[obj.dtype]), obj.key, "cpu", obj.numel)

            def reducer_override(self, obj: Any) -> Any:
                if not isinstance(obj, View):
                    return NotImplemented
                arguments = (obj.storage, obj.offset, obj.shape, obj.stride, False, OrderedDict())
                return (torch._utils._rebuild_tensor_v2, arguments)

        Pickler(buffer, protocol=2).dump(state)
    return buffer.getvalue(), list(used.values())


def zip_member(archive: zipfile.ZipFile, name: str, data: bytes, align: int = 64) -> None:
    """Stores one member with its payload aligned as torch.save does: padding in an extra field called FB."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    assert archive.fp is not None
    at = archive.fp.tell() + 30 + len(name.encode()) + 4
    info.extra = b"FB" + struct.pack("<H", -at % align) + b"Z" * (-at % align)
    archive.writestr(info, data)


def torch_zip(path: Path, state: Any, root: str = "archive", extra: dict[str, bytes] | None = None) -> None:
    """Writes what `torch.save(state, path)` writes since 1.6."""
    pickled, storages = torch_pickle(state)
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        zip_member(archive, f"{root}/data.pkl", pickled)
        zip_member(archive, f"{root}/byteorder", b"little")
        for storage in storages:
            zip_member(archive, f"{root}/data/{storage.key}", storage.data)
        for name, data in (extra or {}).items():
            zip_member(archive, f"{root}/{name}", data)
        zip_member(archive, f"{root}/version", b"3\n")


def training_state(seed: int, tied: bool = True) -> dict[str, Any]:
    """Weights, Adam moments, a scheduler and a random state, as a training loop saves them; the head is tied."""
    rng = np.random.default_rng(seed)
    embed = Storage.of("0", (rng.standard_normal((500, 64)) * 0.02).astype(np.float32))
    weight = Storage.of("1", (rng.standard_normal((64, 192)) * 0.02).astype(np.float32))
    head = embed if tied else Storage("9", embed.dtype, embed.data, embed.numel)
    moments = [Storage.of(str(k), (rng.standard_normal(n) ** 2 * 1e-6).astype(np.float32)) for k, n in _MOMENTS]
    model = OrderedDict(
        [
            ("embed.weight", View.whole(embed, (500, 64))),
            ("qkv.weight", View.whole(weight, (64, 192))),
            ("qkv.weight.T", View(weight, 0, (192, 64), (1, 192))),
            ("qkv.v", View(weight, 128, (64, 64), (192, 1))),
            ("head.weight", View.whole(head, (500, 64))),
        ]
    )
    state = {
        0: {"step": 100 + seed, "exp_avg": View.whole(moments[0], (500, 64))},
        1: {"step": 100 + seed, "exp_avg": View.whole(moments[1], (64, 192))},
    }
    state[0]["exp_avg_sq"] = View.whole(moments[2], (500, 64))
    state[1]["exp_avg_sq"] = View.whole(moments[3], (64, 192))
    return {
        "model": model,
        "optimizer": {"state": state, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0, 1]}]},
        "scheduler": {"last_epoch": seed, "_last_lr": [1e-3]},
        "rng_state": View.whole(Storage.of("8", rng.integers(0, 256, 5056, dtype=np.uint8)), (5056,)),
    }


_MOMENTS = ((2, 32000), (3, 12288), (4, 32000), (5, 12288))


# --- npz, npy, GGUF --------------------------------------------------------------------------------------------------


def write_numpy_files(folder: Path, seed: int) -> None:
    """.npz stored and deflated, .npy in C and Fortran order, big-endian, 0-d, structured and empty."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    arrays = {
        "f32": random_f32((64, 65), seed),
        "f16": random_f32((33,), seed + 1).astype(np.float16),
        "f64": rng.standard_normal((5, 7, 3)),
        "i64": rng.integers(-(2**62), 2**62, 17),
        "u8": rng.integers(0, 256, (9, 9), dtype=np.uint8),
        "bool": rng.integers(0, 2, 31).astype(bool),
        "c64": (rng.standard_normal(12) + 1j * rng.standard_normal(12)).astype(np.complex64),
        "scalar": np.float32(3.5),
        "empty": np.zeros((0, 4), np.float32),
    }
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "deflated.npz", **arrays)
    np.save(folder / "c.npy", arrays["f32"])
    np.save(folder / "fortran.npy", np.asfortranarray(arrays["f32"]))
    np.save(folder / "big_endian.npy", arrays["f32"].astype(">f4"))
    np.save(folder / "zero_d.npy", np.array(-0.0, np.float32))
    np.save(folder / "empty.npy", arrays["empty"])
    np.save(folder / "structured.npy", np.zeros(4, dtype=[("a", "<f4"), ("b", "<i8")]))


def write_gguf(path: Path, seed: int) -> None:
    """A GGUF file with plain and block-quantised tensors, written by the gguf package."""
    import gguf  # imported here: the demo and the benches do without it

    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_name("tiny")
    weights = random_f32((64, 256), seed)
    writer.add_tensor("token_embd.weight", weights)
    writer.add_tensor("blk.0.attn_q.weight", random_f32((64, 64), seed + 1).astype(np.float16))
    for name, kind in (("ffn_up", "Q8_0"), ("ffn_down", "Q4_0"), ("ffn_gate", "BF16")):
        quantised = gguf.GGMLQuantizationType[kind]
        data = gguf.quants.quantize(weights, quantised)
        writer.add_tensor(f"blk.0.{name}.weight", data, raw_dtype=quantised)
    writer.add_tensor("output_norm.weight", np.ones(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- odd but legal ---------------------------------------------------------------------------------------------------


def strange_floats() -> list[Tensor]:
    """NaN payloads of every kind, subnormals, both zeros and infinities, in every float type."""
    f32 = np.array(
        [
            0,
            0x80000000,
            1,
            0x007FFFFF,
            0x80000001,
            0x7F800000,
            0xFF800000,
            0x7FC00000,
            0x7F800001,
            0xFFFFFFFF,
            0x7FA5A5A5,
        ],
        np.uint32,
    )
    f64 = np.array(
        [0, 1 << 63, 1, (1 << 52) - 1, 0x7FF0000000000001, 0xFFF8DEADBEEF1234, 0x7FF0000000000000], np.uint64
    )
    every16 = np.arange(1 << 16, dtype=np.uint16)
    every8 = np.arange(256, dtype=np.uint8)
    return [
        Tensor("f32.strange", "F32", (11,), f32.tobytes()),
        Tensor("f32.strange.many", "F32", (11 * 500,), np.tile(f32, 500).tobytes()),
        Tensor("f64.strange", "F64", (7,), f64.tobytes()),
        Tensor("f16.every", "F16", (256, 256), every16.tobytes()),
        Tensor("bf16.every", "BF16", (256, 256), every16[::-1].tobytes()),
        Tensor("f8_e4m3.every", "F8_E4M3", (256,), every8.tobytes()),
        Tensor("f8_e5m2.every", "F8_E5M2", (16, 16), every8[::-1].tobytes()),
        Tensor(
            "f32.subnormal", "F32", (4096,), np.random.default_rng(5).integers(1, 1 << 23, 4096, np.uint32).tobytes()
        ),
        Tensor("f32.noise", "F32", (4096,), np.random.default_rng(6).bytes(16384)),
        Tensor("f32.zero", "F32", (4096,), bytes(16384)),
        Tensor("f32.minus_zero", "F32", (4096,), b"\0\0\0\x80" * 4096),
        Tensor("f32.one_value", "F32", (5000,), np.full(5000, 0.1, np.float32).tobytes()),
    ]


def every_dtype() -> list[Tensor]:
    """One tensor of every safetensors dtype, a scalar, zero-size shapes and bools that are neither 0 nor 1."""
    rng = np.random.default_rng(7)
    out = []
    for code in ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8"):
        size = {"64": 8, "32": 4, "16": 2}.get(code[-2:], 1)
        out.append(Tensor(f"{code}.values", code, (3, 5), rng.bytes(15 * size)))
        out.append(Tensor(f"{code}.scalar", code, (), rng.bytes(size)))
        out.append(Tensor(f"{code}.none", code, (0, 7), b""))
    out.append(Tensor("BF16.values", "BF16", (15,), bf16_round(random_f32((15,), 1)).tobytes()))
    out.append(Tensor("BOOL.odd", "BOOL", (4,), bytes([0, 1, 2, 255])))
    out.append(Tensor('names/ünïcödé \u2603 "quoted" ../../up', "F32", (2,), bytes(8)))
    return out


def _raw(header: dict[str, Any], data: bytes, align: int = 8) -> bytes:
    return header_bytes(header, align) + data


def _entry(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


DOUBTFUL = frozenset(
    {
        "trailing.safetensors",
        "not_a_zip.pt",
        "not_safetensors.safetensors",
        "misaligned_data.safetensors",
        "trap.gguf",
        "empty.bin",
    }
)
"""Odd files that a scanner may call damaged, because their own format says so."""


def odd_files() -> dict[str, bytes]:
    """Files that a strict reader may refuse but whose bytes must survive."""
    body = random_f32((64,), 11).tobytes()
    good = safetensors_bytes(every_dtype(), {"note": "odd"})
    return {
        "strange.safetensors": safetensors_bytes(strange_floats()),
        "every_dtype.safetensors": good,
        "gap.safetensors": _raw({"a": _entry(0, 64, [16]), "b": _entry(128, 256, [32])}, body),
        "overlap.safetensors": _raw({"a": _entry(0, 192, [48]), "b": _entry(64, 256, [48])}, body),
        "same_range.safetensors": _raw({"a": _entry(0, 256, [64]), "b": _entry(0, 256, [8, 8])}, body),
        "nested.safetensors": _raw({"a": _entry(0, 256, [64]), "b": _entry(64, 128, [16])}, body),
        "unaligned_header.safetensors": _raw({"a": _entry(0, 256, [64])}, body, align=1),
        "misaligned_data.safetensors": _raw({"a": _entry(1, 253, [63])}, body, align=1),
        "trailing.safetensors": _raw({"a": _entry(0, 256, [64])}, body + b"trailing bytes"),
        "no_tensors.safetensors": header_bytes({"__metadata__": {"k": "v"}}),
        "out_of_order.safetensors": _raw({"b": _entry(128, 256, [32]), "a": _entry(0, 128, [32])}, body),
        "empty.bin": b"",
        "one.bin": b"\0",
        "not_a_zip.pt": b"PK\x03\x04 but then nothing of a zip archive follows",
        "not_safetensors.safetensors": b"plain text, no header",
        "text.txt": b"hello\n" * 1000,
        "random.bin": np.random.default_rng(12).bytes(300_000),
        "zeros.bin": bytes(3 << 20),
        "trap.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0),
    }


# --- hostile ---------------------------------------------------------------------------------------------------------


def _duplicate_names() -> bytes:
    text = (
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}'
    )
    return struct.pack("<Q", len(text)) + text + bytes(16)


def hostile_files() -> dict[str, bytes]:
    """Checkpoint files that lie: duplicate names, ranges outside the file, shapes that do not fit, absurd headers."""
    body = bytes(256)
    whole = safetensors_bytes(small_model(3, 1, 16))
    huge = (1 << 63) - 1
    return {
        "duplicate_names.safetensors": _duplicate_names(),
        "past_the_end.safetensors": _raw({"a": _entry(0, 1 << 40, [1 << 38])}, body),
        "shape_too_big.safetensors": _raw({"a": _entry(0, 256, [65])}, body),
        "shape_overflows.safetensors": _raw({"a": _entry(0, 256, [huge, huge, 64])}, body),
        "backwards.safetensors": _raw({"a": _entry(256, 0, [64])}, body),
        "header_past_the_end.safetensors": struct.pack("<Q", huge) + b'{"a":1}',
        "header_4_gib.safetensors": struct.pack("<Q", 1 << 32) + b"{" + bytes(100),
        "deep_header.safetensors": struct.pack("<Q", 100_000) + b"[" * 100_000,
        "truncated.safetensors": whole[: len(whole) // 2],
    }


def make_folder(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def each(folder: Path, make: Callable[[Path], None], name: str) -> Path:
    """Calls one maker on a path inside a folder and returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    make(folder / name)
    return folder / name
