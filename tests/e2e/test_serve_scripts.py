"""Cross-site scripting: untrusted names are shown on pages, and never run there."""

from __future__ import annotations

import html.parser
import json
from pathlib import Path
from urllib.parse import quote

import numpy as np
from support import raw
from support.cli import Mdl
from support.raw import FORM, form
from support.server import Server, create_token
from support.tensors import Tensor, write_safetensors

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "</title><svg onload=alert(1)>",
    "javascript:alert(1)",
)
CARD = """---
license: <script>alert(1)</script>
tags: ["<img src=x onerror=alert(1)>"]
---
# <script>alert(1)</script> <b onclick="alert(1)">x</b>
<script src=//evil.example/x.js></script><svg onload=alert(1)><script>alert(1)</script></svg>
<iframe src="javascript:alert(1)"></iframe><embed src=x>
<object data="data:text/html,<script>alert(1)</script>"></object>
<img src=x onerror=alert(1)><a href="javascript:alert(1)">a</a> [b](javascript:alert(1)) [c](JaVaScRiPt&#58;alert(1))
[d](data:text/html;base64,PHNjcmlwdD4=) [e](vbscript:x) ![f](javascript:alert(1))
<https://ok.example/"onmouseover="alert(1)>
<form action=//evil.example><input name=token><button formaction="javascript:alert(1)">go</button></form>
<style>*{background:url(//evil.example)}</style><base href=//evil.example>
<meta http-equiv=refresh content="0;url=//evil.example">
<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;"></math>
<div style="background:url(javascript:alert(1))" onmouseover=alert(1)>x</div> <a href="//ok.example" target=_blank>y</a>

| <svg/onload=alert(1)> | `</code><script>alert(1)</script>` |
|---|---|
| <details open ontoggle=alert(1)> | &lt;script&gt; |
"""
ACTIVE = {
    "iframe",
    "object",
    "embed",
    "base",
    "applet",
    "frame",
    "frameset",
    "portal",
    "math",
    "foreignobject",
    "template",
}


class Looker(html.parser.HTMLParser):
    """Notes everything on a page that a browser would run or be led away by."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts: list[str | None] = []
        self.script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ACTIVE:
            self.found.append(f"<{tag}>")
        given = dict(attrs)
        self.script = tag == "script"
        if tag == "script":
            self.scripts.append(given.get("src"))
        if (
            tag == "meta"
            and given.get("http-equiv", "").lower() == "refresh"
            and "url" in (given.get("content") or "").lower()
        ):
            self.found.append("<meta refresh>")
        if tag == "form" and not (given.get("action") or "/").startswith("/"):
            self.found.append(f"<form action={given['action']}>")
        for name, value in attrs:
            text = "".join((value or "").split()).lower()
            if name.startswith("on") or name in ("srcdoc", "formaction", "ping"):
                self.found.append(f"<{tag} {name}>")
            if name in ("href", "src", "action", "xlink:href", "data", "poster", "background") and text.startswith(
                ("javascript:", "vbscript:", "data:text", "data:application", "data:image/svg")
            ):
                self.found.append(f"<{tag} {name}={value}>")
            if name == "style" and ("url(" in text or "expression" in text):
                self.found.append(f"<{tag} style={value}>")

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag: str) -> None:
        self.script = False

    def handle_data(self, data: str) -> None:
        if self.script and data.strip():
            self.found.append(f"a script on the page: {data[:80]}")


def evil_repository(root: Path) -> None:
    """Everything that strangers may name, named to do harm."""
    mdl = Mdl.init(root / "ada/gpt", "--bare")
    mdl.run("config", "user.name", EVIL[1])
    mdl.run("config", "user.email", EVIL[3])
    folder = root.parent / "evil"
    sub = folder / "<img src=x onerror=alert(1)>"
    sub.mkdir(parents=True)
    for step in (1, 2, 3):
        tensors = [Tensor.of(f"{evil}.{n}", np.full(64, step + n, np.float32)) for n, evil in enumerate(EVIL)]
        write_safetensors(folder / "model.safetensors", tensors, {evil: evil for evil in EVIL})
        (folder / "README.md").write_text(CARD)
        for n, evil in enumerate(EVIL):
            (folder / f"{n}{evil.replace('/', '_')}.txt").write_text(f"{evil} {step}\n")
        (sub / "page.html").write_text("<script>alert(1)</script>")
        (folder / "picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
        (folder / "config.json").write_text(json.dumps({evil: evil for evil in EVIL}))
        options = [x for evil in EVIL for x in ("--meta", f"{evil}={evil}")]
        options += [x for evil in EVIL for x in ("--metric", f"{evil.replace('=', ':')}={step}")]
        mdl.commit(
            folder,
            f"{EVIL[0]}\n\n{' '.join(EVIL)}",
            "--step",
            str(step),
            *options,
        )


def test_nothing_that_strangers_name_runs_on_a_page(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    evil_repository(root)
    token = create_token(root, name=EVIL[0])
    with Server(root, token=token) as server:
        for evil in ("<script>alert(1)<", 'x"onload=alert(1)'):
            server.send("PUT", f"/api/v1/repos/ada/gpt/refs/heads/{quote(evil, safe='')}", {"target": "main"})
            server.send(
                "PUT",
                f"/api/v1/repos/ada/gpt/refs/tags/t{quote(evil, safe='')}",
                {"target": "main", "annotate": True, "message": evil},
            )
        meta = {
            "message": EVIL[0],
            "base": "parent",
            "metrics": dict.fromkeys(EVIL, 4.0),
            "meta": dict.fromkeys(EVIL, EVIL[1]),
        }
        made = raw.request(server.url, "POST", "/api/v1/repos/ada/gpt/commits", token, form(meta, {"new": b"x"}), FORM)
        assert raw.status(made) == 201, made
        tree = server.get("/api/models/ada/gpt/tree/main?recursive=true").json()
        files = [quote(entry["path"]) for entry in tree]
        pages = [
            "/",
            "/login",
            "/login?next=%22%3E%3Cscript%3E",
            "/ada/gpt",
            "/ada/gpt/commits/main",
            "/ada/gpt/commit/main",
        ]
        pages += [
            "/ada/gpt/tree/main",
            "/ada/gpt/compare",
            "/ada/gpt/compare/main~1/main",
            "/ada/gpt/compare/main~2/main",
        ]
        pages += [f"/ada/gpt/blob/main/{f}" for f in files] + [f"/ada/gpt/tree/main/{f}" for f in files]
        pages += [
            "/ada/%3Cscript%3E",
            "/ada/gpt/commit/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
            "/ada/gpt/blob/main/%22%3E%3Cscript%3E",
        ]
        pages += ["/?q=%3Cscript%3E", "/ada/gpt/commits/main?after=%3Cscript%3E", "/%3Cscript%3Ealert(1)%3C/script%3E"]
        shown = set()
        for page in pages:
            answer = server.get(page, Accept="text/html")
            assert answer.status in (200, 400, 404), f"{page}: {answer.status} {answer.body[:300]!r}"
            kind = answer.headers["content-type"]
            policy = answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff", page
            assert "default-src 'none'" in policy, page
            assert "unsafe" not in policy, page
            if not kind.startswith("text/html"):
                continue
            shown.add(answer.status)
            looker = Looker()
            looker.feed(answer.body.decode())
            assert not looker.found, f"{page}: {looker.found}"
            assert all(s and s.startswith("/assets/mdl-") for s in looker.scripts), f"{page}: {looker.scripts}"
            assert len(looker.scripts) <= 1, page
        assert shown >= {200, 404}, "no pages were seen"
        assert "alert(1)" in server.get("/ada/gpt/commit/main", Accept="text/html").body.decode(), (
            "nothing hostile was shown"
        )
        for file in files:
            for raw_path in (f"/ada/gpt/resolve/main/{file}", f"/api/v1/repos/ada/gpt/files/main/{file}"):
                answer = server.get(raw_path, Accept="text/html")
                if answer.status != 200:
                    continue
                assert "html" not in answer.headers["content-type"], raw_path
                assert (
                    "xml" not in answer.headers["content-type"]
                    or "sandbox" in answer.headers["content-security-policy"]
                ), raw_path
                assert "default-src 'none'" in answer.headers["content-security-policy"], raw_path
                assert answer.headers["x-content-type-options"] == "nosniff", raw_path
