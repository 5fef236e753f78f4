"""Fuzzing with hostile requests from several clients; checks each answer, and which files the server opened."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from urllib.parse import unquote_to_bytes

from . import makers
from .cli import Mdl
from .hostile import Maker, Request, World
from .keep_alive import Connection, NoReply, Reply
from .opened import Opened
from .processes import peak, status
from .served import fill
from .server import Server, create_token

CLIENTS = 4
PATIENCE = 30
"""Seconds after which a request that was not answered hangs, on a machine with other things to do."""
MEMORY = 700 << 20
THREADS = 100
BATCH = 50
"""Requests of a client between two looks at what the server opened."""
ENOUGH = 10
"""Findings after which it ends."""
SPENT = (503, 507)
"""What of 5xx a server may say: it is busy, or its disk is full."""

ADA, BOB, CANARY = "kept-by-ada", "kept-by-bob", "canary-outside-of-everything"
MARKS = {"ada/gpt": ADA, "bob/gpt": BOB, "ada/open": "for-everybody"}
OUTSIDE = (CANARY.encode(), b"root:x:0:", b'"hash":')


class Grounds:
    """Ada's private repository and an open one, Bob's private one, and around them what is no server's business."""

    def __init__(self, top: Path) -> None:
        self.top, self.root = top, top / "root"
        self.root.mkdir()
        (top / "canary.txt").write_text(CANARY)
        (self.root / "canary.txt").write_text(CANARY)
        os.mkfifo(top / "fifo")
        self.ids: dict[str, list[str]] = {}
        token = {scope: create_token(self.root, scope, "ada/*", name=scope) for scope in ("read", "write", "admin")}
        self.admin = token["admin"]
        bearers = {name: f"Bearer {text}" for name, text in token.items()}
        bearers["foreign"] = f"Bearer {create_token(self.root, 'admin', 'bob/*', name='bob')}"
        self.callers = {"none": "", **bearers, "cookie": "", "wrong": "Bearer mdl_0123456789ab_" + "0" * 64}

    def fill(self) -> list[Mdl]:
        """Makes the repositories in the served directory."""
        folder = self.top / "folder" / "ada/gpt"
        folder.mkdir(parents=True)
        makers.torch_zip(folder / "state.pt", makers.training_state(1))
        makers.write_numpy_files(folder, 1)
        repos = {name: fill(self.root, name, mark) for name, mark in MARKS.items()}
        repos["ada/open"].run("config", "serve.anonymous_read", "true")
        self.ids = {name: [c["id"] for c in mdl.log()] for name, mdl in repos.items()}
        return list(repos.values())

    def sign_in(self, server: Server) -> None:
        """What a browser has for Ada's token."""
        body = f"token={self.admin}".encode()
        head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
        head += b"Content-Type: application/x-www-form-urlencoded\r\n\r\n"
        reply = Connection(server.url, PATIENCE).exchange(head, body)
        self.callers["cookie"] = reply.header("set-cookie").split(";")[0]

    def world(self, server: Server) -> World:
        document = server.get("/api/v1/openapi.json").json()
        queries = {
            f"{method.upper()} {path}": [p["name"] for p in operation.get("parameters", []) if p["in"] == "query"]
            for path, item in document["paths"].items()
            for method, operation in item.items()
        }
        queries |= {"GET /{owner}/{name}/compare": ["a", "b"], "GET /{owner}/{name}/commits/{rev}": ["after", "all"]}
        queries |= {f"GET /{{owner}}/{{name}}/{kind}/{{rev}}": ["start", "filter"] for kind in ("tree", "commit")}
        hub = "GET /api/models"
        queries |= {hub: ["search", "author", "limit", "cursor", "full"], hub + "/{owner}/{name}": ["blobs"]}
        queries |= {
            hub + "/{owner}/{name}/tree/{rev}": ["recursive", "expand", "cursor", "limit"],
            hub + "/{owner}/{name}/commits/{rev}": ["p", "limit"],
        }
        outside = [str(self.top / "canary.txt"), str(self.top / "fifo"), str(self.root / "canary.txt"), "/etc/passwd"]
        outside += ["/etc/shadow", "/dev/zero", "/dev/stdin", "/dev/shm", "/proc/self/environ", "/proc/self/mem"]
        packs = [p.read_bytes() for p in sorted((self.root / "ada/gpt").rglob("*.pack"))[:2]]
        files = [str(self.root / ".mdl-serve" / "tokens.json"), str(self.root / "bob/gpt/HEAD")]
        tensors = [f"{ADA}.weight"]
        return World(self.callers, outside + files, queries, self.ids["ada/gpt"], tensors, packs)

    def secrets(self, caller: str) -> list[bytes]:
        """What this caller must not see."""
        own = {"none": (), "wrong": (), "foreign": ("bob",)}.get(caller, ("ada",))
        marks = {"ada": [ADA, *self.ids["ada/gpt"]], "bob": [BOB, *self.ids["bob/gpt"]]}
        return [mark[:40].encode() for owner in marks if owner not in own for mark in marks[owner]]


class Fuzz:
    """Some clients at once, and what they find."""

    def __init__(self, grounds: Grounds, server: Server, opened: Opened, seed: str) -> None:
        self.grounds, self.server, self.opened, self.seed = grounds, server, opened, seed
        self.world = grounds.world(server)
        self.findings: list[str] = []
        self.published: set[bytes] = set()
        self.statuses: Counter[int] = Counter()
        self.peak = Counter[str]()
        self.lock = threading.Lock()
        self.recent: list[Request] = []

    def run(self, count: int) -> None:
        clients = [threading.Thread(target=self.client, args=(n, count // CLIENTS)) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    def client(self, number: int, count: int) -> None:
        maker = Maker(self.world, f"{self.seed}-{number}")
        connection = Connection(self.server.url, PATIENCE)
        for n in range(count):
            if len(self.findings) >= ENOUGH:
                return
            self.one(maker, connection)
            if n % BATCH == BATCH - 1:
                self.look()
        connection.close()

    def one(self, maker: Maker, connection: Connection) -> None:
        request = maker.next()
        self.recent.append(request)
        try:
            reply = connection.exchange(request.head(), request.body, is_head=request.method == "HEAD")
        except TimeoutError:
            return self.found("no answer in time", request)
        except (NoReply, OSError, ValueError) as error:
            return self.found(f"no answer: {error!r}", request)
        self.statuses[reply.status] += 1
        self.judge(request, reply)
        if reply.status in (201, 202):
            maker.learn(reply.body)
        if request.caller == "cookie" and request.template == "/logout":
            self.grounds.sign_in(self.server)
        return None

    def judge(self, request: Request, reply: Reply) -> None:
        if reply.status >= 500 and reply.status not in SPENT:
            self.found(f"{reply.status} {reply.body[:200]!r}", request)
        # What a request said itself may come back.
        once = unquote_to_bytes(request.head())
        asked = (request.head() + once + unquote_to_bytes(once) + request.body).lower()
        said = reply.head + reply.body
        secrets = [*OUTSIDE, *self.grounds.secrets(request.caller)]
        if request.method not in ("GET", "HEAD") and "/ada/open" in request.target and reply.status < 300:
            # Who knows a secret may write it where all can read.
            self.published |= {mark for mark in self.grounds.secrets("none") if mark in asked}
        for secret in secrets:
            if secret in said and secret not in asked and secret not in self.published:
                at = said.index(secret)
                self.found(f"told {secret!r}: {said[max(0, at - 200) : at + 100]!r}", request)

    def found(self, what: str, request: Request | None) -> None:
        with self.lock:
            self.findings.append(f"{what}\n    {request or ''}")

    def look(self) -> None:
        """At what the server opened, and how much it takes."""
        with self.lock:
            outside = self.opened.outside()
            recent, self.recent = self.recent[-BATCH * CLIENTS * 2 :], []
        for path in sorted(outside):
            name = Path(path).name
            guilty = next((r for r in recent if name in r.target or name.encode() in r.body), None)
            self.found(f"it asked the system for {path!r}", guilty)
        memory, threads = peak(self.server.pid), status(self.server.pid, "Threads")
        self.peak["memory"], self.peak["threads"] = max(self.peak["memory"], memory), max(self.peak["threads"], threads)
        if memory > MEMORY:
            self.found(f"it took {memory >> 20} MiB", None)
        if threads > THREADS:
            self.found(f"it has {threads} threads", None)
