"""The pages of `mdl serve` in headless Chromium: they open, nothing overflows, the console stays silent, the keyboard
reaches everything, plots and graphs are drawn. Screenshots go to target/screenshots.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli import ROOT, Mdl
from support.makers import write_small_checkpoint
from support.server import Server, create_token

CHROMIUM = shutil.which("chromium")
WIDTHS = {"phone": 360, "tablet": 768, "desktop": 1280}
SHOTS = ROOT / "target" / "screenshots"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]
CARD = """---
license: mit
tags: [tiny]
---
# A tiny model

It was *trained* to be shown. <script>alert("card")</script> [click](javascript:alert(1))

| step | loss |
| --- | --- |
| 100 | 1.0 |
"""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: the pages were not looked at"),
    pytest.mark.xdist_group("chromium"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two branches, a tag, twelve versions of a small model, and names that try to be markup."""
    root = tmp_path_factory.mktemp("pages") / "root"
    mdl = Mdl.init(root / "ada" / "tiny", "--bare")
    source = root.parent / "source"
    for step in range(12):
        folder = source / str(step)
        folder.mkdir(parents=True)
        write_small_checkpoint(folder, step + 1)
        (folder / "README.md").write_text(CARD)
        message = (
            f"step {step * 100} of the run with the longer warm-up and the lower learning rate"
            if step != 5
            else '<script>alert("message")</script> & "quotes"'
        )
        options = [
            "--step",
            str(step * 100),
            "--metric",
            f"loss={2 / (step + 1):.4f}",
            "--metric",
            f"acc={step / 12:.3f}",
            "--metric",
            f"eval/perplexity={100 / (step + 7):.4f}",
        ]
        if step in (6, 7):
            options += ["--branch", "ablation"]
        mdl.commit(folder, message, *options)
    mdl.run("tag", "v1", "main~2")
    with Server(root) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield chromium
        chromium.close()


PAGES = {
    "repositories": "/",
    "overview": "/ada/tiny",
    "log": "/ada/tiny/commits/main",
    "commit": "/ada/tiny/commit/main",
    "files": "/ada/tiny/tree/main",
    "tensors": "/ada/tiny/blob/main/model.safetensors",
    "text": "/ada/tiny/blob/main/notes/run.txt",
    "compare": "/ada/tiny/compare/main~3/main",
    "changes": "/ada/tiny/blame/main",
    "changes-by-amount": "/ada/tiny/blame/main?by=amounts",
}


ROW = 52
"""Pixels of a row of the log, and of the graph in it."""
LOG = """[...document.querySelectorAll(".scroll:has(> table.log)")].map(card => [
  card.scrollWidth - card.clientWidth,
  [...card.querySelectorAll("tbody tr")].map(row => row.getBoundingClientRect().height),
])"""
"""By how much each table of commits is wider than its card, and the heights of its rows."""


class Visit:
    """A page that is open, and what its console said."""

    def __init__(self, browser: Any, width: int, scheme: str = "light") -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("dialog", lambda d: (self.said.append(f"dialog: {d.message}"), d.dismiss()))

    def open(self, url: str) -> Any:
        response = self.page.goto(url, wait_until="networkidle")
        assert response is not None
        assert response.status == 200, f"{url}: {response.status}"
        return self.page

    def close(self) -> None:
        self.page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["phone", "desktop"])
def test_everybody_can_use_every_page(served: Server, browser: Any, width: str, scheme: str) -> None:
    """As far as axe-core can tell: contrast, names of controls, headings, landmarks, tables."""
    source = (Path(pytest.importorskip("axe_playwright_python").__file__).parent / "axe.min.js").read_text()
    visit = Visit(browser, WIDTHS[width], scheme)
    for name, path in PAGES.items():
        page = visit.open(served.url + path)
        page.evaluate(source)
        found = page.evaluate("axe.run()")
        assert len(found["passes"]) > 10, f"axe-core looked at next to nothing of {name}"
        wrong = {rule["id"]: [node["html"][:200] for node in rule["nodes"]] for rule in found["violations"]}
        assert wrong == {}, name
    visit.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_is_silent(served: Server, browser: Any, width: str, scheme: str) -> None:
    visit = Visit(browser, WIDTHS[width], scheme)
    SHOTS.mkdir(parents=True, exist_ok=True)
    for name, path in PAGES.items():
        page = visit.open(served.url + path)
        page.screenshot(path=SHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{name} at {WIDTHS[width]} px is {overflow} px too wide"
        log = page.evaluate(LOG)
        assert [wide for wide, _ in log if wide > 0] == [], f"the commits of {name} at {WIDTHS[width]} px do not fit"
        # The graph's lines meet only if no row is higher than its picture.
        assert {height for _, heights in log for height in heights} <= {ROW}, name
        assert page.title(), name
        assert page.locator("main").count() == 1, name
        assert page.locator("h1").count() == 1, name
        assert page.evaluate("document.documentElement.lang") == "en", name
    assert visit.said == []
    visit.close()


def test_graph_plots_and_heat_map_are_drawn(served: Server, browser: Any) -> None:
    visit = Visit(browser, 1280)
    page = visit.open(served.url + PAGES["log"])
    assert page.locator("svg").count() >= 1
    assert page.get_by_text("ablation").count() >= 1 or page.get_by_text("v1").count() >= 1
    assert page.get_by_text('<script>alert("message")</script>').count() >= 1
    page = visit.open(served.url + PAGES["overview"])
    plots = page.locator("svg[role=img]")
    assert plots.count() >= 2
    for i in range(plots.count()):
        box = plots.nth(i).bounding_box()
        assert box is not None, "a plot is not shown"
        assert box["width"] > 100, "a plot is no wider than 100 px"
    assert page.get_by_text("A tiny model").count() >= 1
    assert page.locator("main script").count() == 0
    page = visit.open(served.url + PAGES["compare"])
    for layer in range(4):
        assert page.get_by_text(f"layers.{layer}").count() + page.locator(f"text=/\\b{layer}\\b/").count() >= 1
    assert visit.said == []
    visit.close()


def test_the_keyboard_reaches_every_link(served: Server, browser: Any) -> None:
    visit = Visit(browser, 1280)
    page = visit.open(served.url + PAGES["overview"])
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.textContent.trim()")
    assert "skip" in first.lower(), f"the first stop is {first!r}"
    links = page.evaluate(
        "[...document.querySelectorAll('a[href], button, summary, input')].filter(e => e.checkVisibility()).length"
    )
    reached = set()
    for _ in range(links + 5):
        page.keyboard.press("Tab")
        here = page.evaluate(
            "(() => { const e = document.activeElement; const s = getComputedStyle(e);"
            " return [e.outerHTML.slice(0, 120), s.outlineStyle, s.boxShadow]; })()"
        )
        if here[0].startswith("<body"):
            break
        reached.add(here[0])
        assert here[1] != "none" or here[2] != "none", f"focus on {here[0]} cannot be seen"
    assert len(reached) >= min(links, 10)
    visit.close()


def test_clicking_through_from_the_list_to_a_tensor(served: Server, browser: Any) -> None:
    visit = Visit(browser, 768)
    page = visit.open(served.url)
    page.get_by_role("link", name="ada/tiny").first.click()
    page.wait_for_url("**/ada/tiny")
    page.goto(served.url + PAGES["log"])
    page.get_by_role("link", name="step 1100").first.click()
    page.wait_for_url("**/commit/**")
    page.get_by_role("link", name="model.safetensors").first.click()
    page.wait_for_url("**/blob/**")
    assert page.get_by_text("layers.0.weight").count() >= 1
    assert visit.said == []
    visit.close()


def test_signing_in_shows_what_is_private(tmp_path: Path, browser: Any) -> None:
    root = tmp_path / "root"
    mdl = Mdl.init(root / "ada" / "secret", "--bare")
    source = tmp_path / "source"
    source.mkdir()
    mdl.commit(write_small_checkpoint(source, 1), "hidden")
    token = create_token(root, "read", "ada/*")
    with Server(root) as server:
        visit = Visit(browser, 1280)
        page = visit.open(server.url)
        assert page.get_by_text("ada/secret").count() == 0
        page.goto(server.url + "/login")
        page.locator("input[name=token]").fill(token)
        page.keyboard.press("Enter")
        page.wait_for_url(server.url + "/")
        assert page.get_by_text("ada/secret").count() >= 1
        cookie = visit.page.context.cookies()[0]
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        visit.close()
