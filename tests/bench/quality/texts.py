"""Texts that any machine with the test packages has, and their tokens: what the fine-tune learns and is judged by.

Docstrings and blocks of comments of Python's standard library, labelled with the group of modules that they come from,
and docstrings of numpy for the general ability, which no training text comes from. Every text counts once,
and which part it is in is decided by its own hash.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy
from minilm_eval import WordPiece, words

GROUPS = {
    "concurrency": "asyncio concurrent multiprocessing threading subprocess queue selectors sched signal",
    "mail": "email mailbox smtplib imaplib poplib nntplib mailcap mimetypes quopri base64 binascii",
    "network": "http urllib socketserver ftplib ssl socket ipaddress telnetlib xmlrpc wsgiref webbrowser cgi",
    "testing": "unittest doctest pdb bdb trace cProfile profile pstats timeit tracemalloc traceback",
    "imports": "importlib pkgutil zipimport runpy venv ensurepip modulefinder sysconfig site zipapp distutils",
    "language": "inspect ast dis tokenize typing dataclasses abc enum types functools collections contextlib pickle"
    " pickletools copy copyreg weakref opcode symtable codeop code",
    "files": "os pathlib shutil tempfile glob tarfile zipfile gzip bz2 lzma posixpath ntpath genericpath fnmatch"
    " filecmp fileinput io _pyio stat linecache",
    "numbers": "_pydecimal decimal fractions statistics random datetime calendar numbers _pydatetime _strptime heapq"
    " bisect locale colorsys secrets hmac",
    "programs": "logging argparse optparse configparser cmd getopt gettext textwrap pprint string getpass shlex"
    " platform cgitb rlcompleter curses turtle pydoc difflib",
}
FEWEST_WORDS = 8


def key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def flat(text: str) -> str:
    return " ".join(text.split())


def docstrings(source: str) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return [flat(ast.get_docstring(node) or "") for node in ast.walk(tree) if isinstance(node, kinds)]


def comments(source: str) -> Iterator[str]:
    """Lines of comments that follow each other, as one text."""
    block: list[str] = []
    for line in [*source.splitlines(), ""]:
        if line.strip().startswith("#"):
            block.append(line.strip().lstrip("#! "))
        elif block:
            yield flat(" ".join(block))
            block = []


def sources(root: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root)
        if not {"test", "tests", "site-packages", "testing", "_vendor"} & set(inner.parts):
            yield inner, path.read_text(encoding="utf-8", errors="ignore")


def labelled() -> list[list[str]]:
    """The texts of every group, each text once, in the order of their hashes."""
    of = {module: label for label, names in enumerate(GROUPS.values()) for module in names.split()}
    found: list[dict[bytes, str]] = [{} for _ in GROUPS]
    seen: set[bytes] = set()
    for path, source in sources(Path(sysconfig.get_paths()["stdlib"])):
        label = of.get(path.parts[0].removesuffix(".py"))
        if label is None:
            continue
        for text in [*docstrings(source), *comments(source)]:
            digest = key(text)
            if digest not in seen and len(text.split()) >= FEWEST_WORDS:
                seen.add(digest)
                found[label][digest] = text
    return [[texts[digest] for digest in sorted(texts)] for texts in found]


def general_pairs(count: int) -> list[tuple[str, str]]:
    """(first sentence, the rest) of numpy's docstrings: the one has to find the other."""
    found: dict[str, str] = {}
    for _, source in sources(Path(numpy.__file__).parent):
        for text in docstrings(source):
            first, _, rest = text.partition(". ")
            if len(first) > 30 and len(rest) > 60:
                found.setdefault(first, rest)
    chosen = sorted(found, key=key)[:count]
    return [(first, found[first]) for first in chosen]


class Tokens:
    """Token numbers with [CLS] and [SEP] around them, at most `length` in all."""

    def __init__(self) -> None:
        self.pieces = WordPiece()
        self.cache: dict[str, list[int]] = {}

    def word(self, word: str) -> list[int]:
        if word not in self.cache:
            self.cache[word] = self.pieces.word(word)
        return self.cache[word]

    def encode(self, text: str, length: int) -> list[int]:
        ids = [piece for word in words(text) for piece in self.word(word)][: length - 2]
        return [self.pieces.ids["[CLS]"], *ids, self.pieces.ids["[SEP]"]]
