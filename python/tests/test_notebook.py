"""What notebooks show: HTML that is well formed and escaped, data frames, plots."""

from __future__ import annotations

import html.parser
import sys

import mdl
import numpy as np
import pytest


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
