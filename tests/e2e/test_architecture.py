"""The layout that docs/architecture.md draws holds: directions of imports, sizes, where hints and methods may be."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = {path.parent.name: path.parent for path in ROOT.glob("crates/*/Cargo.toml")}
PROGRAMS = {"cli": ROOT / "cli", "server": ROOT / "server", "python": ROOT / "python"}

# A crate uses only what is named before it.
CRATE_ORDER = [
    "codec", "codec-cuda", "merge", "files", "objects", "store", "lossy", "rivals", "repo", "remote", "server", "cli",
]  # fmt: skip
# A room of these crates uses only what is named before it.
ROOM_ORDER = {
    "store": [
        "error", "progress", "values", "storage", "pack", "cache", "lock", "object_db", "refs", "reachability", "read",
        "write", "store", "transaction",
    ],
    "repo": [
        "config", "identity", "linked", "repo", "sealed", "in_progress", "pruned", "notes", "history", "aging",
        "signing", "provenance", "protection", "work_tree", "commit", "checkout", "branches", "worktrees", "bisect",
        "sequencer", "merge", "shards", "maintenance",
    ],
}  # fmt: skip
MOST_ROOMS = 23
MOST_LINES = 500
MOST_COLUMNS = 120

USE = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.M)
# Comments and single characters, which stay, and string literals, which go.
RUST_TEXT = re.compile(
    r"""(?P<kept>//[^\n]*|'(?:[^'\\]|\\.)')|\bb?r(?P<hashes>#*)".*?"(?P=hashes)|"(?:[^"\\]|\\.)*\"""", re.S
)
UNIT_TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{.*?^\}", re.M | re.S)
REEXPORT = re.compile(r"^pub(?:\(crate\))? use (\w+)::(\{[^}]*\}|\w+);", re.M)


def split(text: str) -> Iterator[str]:
    """The parts of a list, by the commas outside of braces."""
    depth, part = 0, ""
    for letter in text:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += letter
    if part.strip():
        yield part.strip()


def paths(tree: str, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of a use tree."""
    tree = tree.strip()
    if tree.startswith("{"):
        for part in split(tree[1 : tree.rindex("}")]):
            yield from paths(part, before)
        return
    name, _, rest = tree.partition("::")
    if rest:
        yield from paths(rest, (*before, name.strip()))
    else:
        yield (*before, name.split()[0])


def used(text: str) -> Iterator[tuple[str, ...]]:
    """Paths that a source file names, in `use` lines and in code, without its unit tests and comments."""
    text = UNIT_TESTS.sub("", text)
    for tree in USE.findall(text):
        yield from paths(tree)
    code = re.sub(r"//.*", "", USE.sub("", text))
    for path in re.findall(r"\bcrate((?:::\w+)+)", code):
        yield ("crate", *path.split("::")[1:])


def module(file: Path, src: Path) -> tuple[str, ...]:
    parts = file.relative_to(src).with_suffix("").parts
    return parts[:-1] if parts[-1] == "mod" else parts


def imports(src: Path) -> Iterator[tuple[str, str, str]]:
    """Room, room that it uses, and the path that says so."""
    lib = (src / "lib.rs").read_text()
    rooms = set(re.findall(r"^(?:pub(?:\(crate\))? )?mod (\w+)", lib, re.M))
    home = {name: room for room, names in REEXPORT.findall(lib) for name in re.findall(r"\w+", names)}
    for file in sorted(src.rglob("*.rs")):
        here = module(file, src)
        if here == ("lib",):
            continue
        for path in used(file.read_text()):
            if path[0] == "crate":
                there = path[1:]
            elif path[0] == "super":
                ups = sum(1 for part in path if part == "super")
                there = here[: len(here) - ups] + path[ups:]
            else:
                continue
            room = there[0] if there and there[0] in rooms else home.get(there[0] if there else "", here[0])
            if room != here[0]:
                yield here[0], room, f"{file.relative_to(ROOT)}: {'::'.join(path)}"


def test_crates_use_only_what_is_below_them() -> None:
    wrong = []
    for name, place in (CRATES | PROGRAMS).items():
        _, _, after = (place / "Cargo.toml").read_text().partition("[dependencies]")
        above = CRATE_ORDER.index(name) if name in CRATE_ORDER else len(CRATE_ORDER)
        below = re.findall(r"^mdl-([\w-]+)", after.partition("\n[")[0], re.M)
        assert below or name == "codec", f"the dependencies of {name} are not found any more"
        wrong += [f"{name} uses {other}" for other in below if CRATE_ORDER.index(other) >= above]
    assert wrong == []


@pytest.mark.parametrize("crate", sorted(ROOM_ORDER))
def test_rooms_use_only_what_is_below_them(crate: str) -> None:
    order, src = ROOM_ORDER[crate], CRATES[crate] / "src"
    wrong, seen = [], 0
    for room, other, path in imports(src):
        seen += 1
        if order.index(other) >= order.index(room):
            wrong.append(f"{room} uses {other}: {path}")
    assert wrong == []
    assert seen > 50, "the imports are not found any more"
    assert {p.stem for p in src.iterdir()} - {"lib"} == set(order)


def test_no_crate_has_more_rooms_than_can_be_known() -> None:
    counts = {name: len([p for p in (place / "src").iterdir() if p.name != "lib.rs"]) for name, place in CRATES.items()}
    counts["server"] = len([p for p in (ROOT / "server/src").iterdir() if p.name != "lib.rs"])
    assert {name: n for name, n in counts.items() if n > MOST_ROOMS} == {}


def test_the_repository_has_its_methods_in_one_file() -> None:
    # Python's class of that name is another one.
    places = [*CRATES.values(), ROOT / "server", ROOT / "cli"]
    files = [f for place in places for f in (place / "src").rglob("*.rs")]
    having = [str(f.relative_to(ROOT)) for f in files if re.search(r"^impl(<.*>)? Repo\b", f.read_text(), re.M)]
    assert having == ["crates/repo/src/repo.rs"]


def strings(text: str) -> list[str]:
    """The string literals of a source file, without its unit tests and comments."""
    code = re.sub(r"^\s*//.*", "", UNIT_TESTS.sub("", text), flags=re.M)
    return re.findall(r'"((?:[^"\\]|\\.)*)"', code)


def test_libraries_name_no_options() -> None:
    # Those of NVIDIA's compiler and of git are theirs.
    passed_on = [ROOT / "crates/codec-cuda/src/device/compile.rs", ROOT / "crates/repo/src/provenance/code.rs"]
    files = [f for place in CRATES.values() for f in (place / "src").rglob("*.rs") if f not in passed_on]
    found = [
        f"{f.relative_to(ROOT)}: {s}" for f in files for s in strings(f.read_text()) if re.search(r"(^|\W)--[a-z]", s)
    ]
    assert found == []
    assert strings((ROOT / "server/src/problem/hints.rs").read_text()), "literals are not found any more"


def test_nothing_goes_by_the_words_of_an_error() -> None:
    looks = re.compile(
        r"(to_string\(\)|(?<!\.)\bmessage|\breason|\bhint)\s*\.(starts_with|ends_with|contains)\("
        r"|(message|reason|hint) == \""
    )
    places = [*CRATES.values(), ROOT / "server", ROOT / "cli", ROOT / "python"]
    files = [f for place in places for f in (place / "src").rglob("*.rs") if f.stem != "tests"]
    found = [
        f"{f.relative_to(ROOT)}: {line.strip()}"
        for f in files
        for line in UNIT_TESTS.sub("", f.read_text()).splitlines()
        # sled gives a lock that is held no kind of its own.
        if looks.search(line) and "could not acquire lock" not in line
    ]
    assert found == []


def sources(*suffixes: str) -> Iterator[Path]:
    """What people write, by the ends of its names: nothing that is built, no inputs of fuzzers."""
    for top, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in ("target", "corpus") and not f.startswith(".")]
        yield from (Path(top, name) for name in names if name.endswith(suffixes))


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    files = list(sources(".rs", ".py", ".pyi", ".cu", ".cuh", ".cpp", ".c", ".js", ".css", ".sh"))
    lengths = {str(f.relative_to(ROOT)): len(f.read_text().splitlines()) for f in files}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}
    assert len(lengths) > 500, "the files are not found any more"


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines that must not be wide: no tables, no blocks of commands or output, no string literals."""
    text, fenced, table = file.read_text(), False, r"\s*\|"
    if file.suffix == ".rs":
        text = RUST_TEXT.sub(lambda found: found["kept"] or '""' + "\n" * found[0].count("\n"), text)
        table = r"\s*//[!/] \|"
    for number, line in enumerate(text.split("\n"), 1):
        if file.suffix == ".md" and line.lstrip().startswith("```"):
            fenced = not fenced
        if not fenced and not re.match(table, line):
            # As ruff does: a comment for another tool counts for nothing.
            yield number, line.split("  # type: ignore")[0]


def test_no_line_is_wider_than_the_others() -> None:
    wide = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in sources(".rs", ".py", ".md")
        for number, line in prose(file)
        if len(line) > MOST_COLUMNS
    ]
    assert wide == []


# What the glossary replaced, and types that do not say of what they are.
OLD_NAMES = (
    r"of|pour|poured|Pour|Near|Landing|landing|Supplier|supplier|Guest|guest|arrive|take_in|"
    r"grand|Grand|relatives|Relatives|feet|foot|condemned|condemn|Condemned|Sentence|spared|"
    r"rely_on|Said|told|Contract|Judged|Court|court|Hearing|hearing|knob|rung|shelf|Shelf|"
    r"spool|Spool|Overflow|overflow|patience|PATIENCE|Turns|turns|wishes|crowded|Offer|Only|"
    r"Gone|Stored|Plan|Found|Seen|Known"
)
DECLARED = re.compile(rf"^\s*(?:pub(?:\([^)]*\))? )?(?:async )?(?:fn|struct|enum|trait|type|mod|const) ({OLD_NAMES})\b")


def test_no_item_has_a_name_that_the_glossary_replaced() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sources(".rs")
        if "tests" not in file.parts
        for line in UNIT_TESTS.sub("", file.read_text()).splitlines()
        for name in DECLARED.findall(line)
    ]
    assert found == []
