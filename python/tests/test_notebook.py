"""What notebooks show: HTML that is well formed and escaped, data frames, plots."""

from __future__ import annotations

import html.parser
import shutil
import sys
from pathlib import Path

import mdl
import numpy as np
import pytest
from frameworks import need


@pytest.fixture
def history(repo: mdl.Repo) -> mdl.Repo:
    for step, loss in ((0, 3.0), (10, 1.0), (20, 2.0)):
        state = {"model": {"w": np.full((30, 20), step, "f4"), "same": np.zeros(8, "f4")}}
        metrics = {"loss": loss} | ({"acc": step / 20} if step else {})
        repo.commit(state, f"<b>step</b> {step}", step=step, epoch=step / 10, metrics=metrics, wait=True)
    repo.tag("v1", "HEAD~1")
    return repo


class Page(html.parser.HTMLParser):
    """Texts of cells, and that every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.scopes: list[str] = []
        self.captions = 0
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.captions += tag == "caption"
        if tag in ("td", "th"):
            self.cells.append("")
            self.scopes += [dict(attrs).get("scope") or ""] if tag == "th" else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.mark.parametrize("what", ["repo", "log", "commit", "diff", "empty"])
def test_views_are_tables_with_headers_and_no_markup_of_others(
    history: mdl.Repo, what: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shown = {
        "repo": lambda: history,
        "log": lambda: history.log(),
        "commit": lambda: history.show(),
        "diff": lambda: history.diff("HEAD~1", "HEAD"),
        "empty": lambda: mdl.init(tmp_path_factory.mktemp("empty")),
    }[what]()
    text = shown._repr_html_()
    page = Page(text)
    assert "<b>" not in text
    assert page.captions >= 1
    assert "" not in page.scopes, "each header says what it heads"
    assert "#" not in text, "no colours but the page's own"
    assert text.isascii()


def test_views_need_no_message_and_no_sound_tip(history: mdl.Repo) -> None:
    history.branch("old", "HEAD~2")
    history.commit({"model": {"w": np.zeros(4, "f4")}}, "", wait=True)
    assert history.show().message == ""
    assert "branch, HEAD" in Page(history._repr_html_()).cells
    assert Page(history.log()._repr_html_()).cells
    assert str(history.show()) == history.show().short_id
    # The newest pack has the newest version.
    max((history.path / "packs").iterdir(), key=lambda pack: pack.stat().st_mtime_ns).unlink()
    damaged = Page(mdl.Repo(history.path)._repr_html_()).cells
    assert damaged[0] == "cannot be shown"
    assert "not found" in damaged[1]


@pytest.mark.parametrize(
    ("time_ms", "minutes", "year"),
    [(1_700_000_000_000, 6039, 2023), (9_000_000_000_000_000_000, 60, 9999), (-(10**17), -60, 1), (2**63 - 1, 0, 9999)],
)
def test_odd_dates_are_shown_as_the_nearest(history: mdl.Repo, time_ms: int, minutes: int, year: int) -> None:
    words = {name: getattr(history.show(), name) for name in mdl.Commit.__dataclass_fields__ if name != "time"}
    made = mdl.Commit.told(words | {"author": ("Ada", ""), "time_ms": time_ms, "utc_offset_min": minutes})
    assert made.time.year == year
    assert made.time.tzinfo is not None
    log = mdl.Log([made, history.show()])
    assert Page(log._repr_html_()).cells
    assert Page(made._repr_html_()).cells
    pytest.importorskip("pandas")
    assert log.to_pandas()["time"].iloc[0] == made.time


@pytest.mark.parametrize(("ground", "text"), [("#fff", "#111"), ("#111418", "#e4e8ee")], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_everybody_can_use_every_view(history: mdl.Repo, width: int, ground: str, text: str) -> None:
    """As far as axe-core can tell, in a page of a notebook's colours."""
    need("playwright", "axe_playwright_python")
    import axe_playwright_python
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is missing: the views were not looked at")
    views = [history, history.log(), history.show(), history.diff("HEAD~1", "HEAD"), mdl.Log(), mdl.Diff()]
    body = "".join(f"<h2>View {i}</h2>{view._repr_html_()}" for i, view in enumerate(views))
    style = f"background:{ground};color:{text};font:14px sans-serif"
    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_content(
            f'<!doctype html><html lang="en"><title>A notebook</title><body style="{style}"><main><h1>A notebook</h1>'
            f"{body}</main></body></html>"
        )
        page.evaluate(axe)
        found = page.evaluate("axe.run()")
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        browser.close()
    assert len(found["passes"]) > 10, "axe-core looked at next to nothing"
    assert {rule["id"]: [node["html"][:200] for node in rule["nodes"]] for rule in found["violations"]} == {}
    assert overflow <= 0


def test_a_log_shows_what_matters(history: mdl.Repo) -> None:
    page = Page(history.log()._repr_html_())
    assert page.cells[:4] == ["version", "step", "loss", "acc"]
    assert page.cells[9:13] == [history.show().short_id, "20", "2", "1"]
    page = Page(history._repr_html_())
    assert "branch, HEAD" in page.cells
    assert "tag" in page.cells
    tensors = Page(history.diff("HEAD~1", "HEAD")._repr_html_()).cells
    assert "model.safetensors: w" in tensors
    assert "model.safetensors: same" not in tensors


def test_a_slice_of_a_log_is_one(history: mdl.Repo) -> None:
    log = history.log()
    assert isinstance(log, list)
    assert isinstance(log[1:], mdl.Log)
    assert isinstance(log[0], mdl.Commit)
    assert [c.step for c in log[1:]] == [10, 0]


def test_a_frame_has_a_row_for_each_version(history: mdl.Repo) -> None:
    pytest.importorskip("pandas")
    frame = history.log().to_pandas()
    assert list(frame["step"]) == [20, 10, 0]
    assert list(frame.index) == [c.id for c in history.log()]
    assert frame["metrics.loss"].min() == 1.0
    assert frame["metrics.acc"].isna().sum() == 1
    assert len(mdl.Log().to_pandas()) == 0


def test_a_plot_has_whole_steps(history: mdl.Repo) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    ax = history.log().plot()
    assert [tuple(p) for p in ax.lines[0].get_xydata()] == [(0, 3.0), (10, 1.0), (20, 2.0)]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "loss")
    assert all(tick == int(tick) for tick in ax.get_xticks())
    ax = history.log().plot("loss", "acc", x="epoch")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["loss", "acc"]
    assert len(ax.lines[1].get_xydata()) == 2
    with pytest.raises(mdl.NotFoundError, match="nothing"):
        history.log().plot("nothing")


@pytest.mark.parametrize(("call", "package"), [("to_pandas", "pandas"), ("plot", "matplotlib")])
def test_a_package_that_is_not_there_is_named(
    history: mdl.Repo, call: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(mdl.UsageError, match=f"pip install {package}"):
        getattr(history.log(), call)()
