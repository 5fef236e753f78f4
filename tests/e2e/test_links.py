"""Links in the documentation: each relative one names a file that is here, each anchor a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What is built, installed or measured, and no page of ours.
NOT_OURS = {"target", ".venv", ".git", "node_modules"}
PAGES = sorted(p for p in ROOT.rglob("*.md") if not NOT_OURS & set(p.relative_to(ROOT).parts))

CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(\S+)", re.M)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    found: dict[str, int] = {}
    out = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for title in HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        n = found[slug] = found.get(slug, -1) + 1
        out.add(slug if n == 0 else f"{slug}-{n}")
    return out


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    wrong = []
    for inline, reference in LINK.findall(CODE.sub("", page.read_text())):
        link = inline or reference
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists():
            wrong.append(f"{link}: there is no {place}")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{link}: {target.name} has no heading {anchor}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_the_pages_are_found_and_a_broken_link_is(tmp_path: Path) -> None:
    assert {"README.md", "CHANGELOG.md", "docs/python.md"} <= {str(p.relative_to(ROOT)) for p in PAGES}
    (tmp_path / "other.md").write_text("# A `code` heading, twice\n# A code heading twice\n## Ünïcode & more\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Own\n[a](other.md#a-code-heading-twice-1) [b](#own) [c](other.md#ünïcode--more) [d](https://x/#y)\n"
        "`[e](none.md)`\n```\n[f](none.md)\n```\n[g](none.md) [h](other.md#none) ![i](none.png) [j](#none)\n"
        "[k]: gone.md\n"
    )
    assert [text.split(":")[0] for text in broken(page)] == [
        "none.md", "other.md#none", "none.png", "#none", "gone.md",
    ]  # fmt: skip
