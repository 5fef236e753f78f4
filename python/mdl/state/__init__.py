"""Encodes states, nested values with tensors, as JSON with references to tensors, and back. No pickle."""

from .decoding import Reference, decode, paths, references
from .encoding import VERSION, Encoded, Leaf, encode, entry_stems
from .values import register

__all__ = [
    "VERSION",
    "Encoded",
    "Leaf",
    "Reference",
    "decode",
    "encode",
    "entry_stems",
    "paths",
    "references",
    "register",
]
