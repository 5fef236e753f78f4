"""The server process: connection limits, open files, sandbox, permissions of its files."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support import raw, scale
from support.cli import Mdl, binary
from support.raw import FORM, form
from support.served import fill
from support.server import Server, create_token

HEADERS_END = 10
"""Seconds that a head, or the body of a client nothing is known of, may take."""
SLACK = 15
"""Seconds beyond a time limit, on a machine with other things to do."""
REPO = "/api/v1/repos/ada/gpt"
JSON = {"Content-Type": "application/json"}
CANARY = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A served directory with one repository."""
    (tmp_path / "root").mkdir()
    fill(tmp_path / "root", "ada/gpt", "mark")
    return tmp_path / "root"


def logged(server: Server) -> str:
    assert server.log is not None
    return server.log.read_text()


@contextlib.contextmanager
def again_and_again(what: Callable[[], None], pause: float) -> Iterator[None]:
    """Does something until the block ends."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(pause):
            what()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            done.set()
            running.result()


def is_served(server: Server, within: float) -> bool:
    """Whether a new client gets an answer in time."""
    end = time.monotonic() + within
    while (left := end - time.monotonic()) > 0:
        with contextlib.suppress(OSError):
            if raw.status(raw.exchange(server.url, CANARY, left)) == 200:
                return True
        time.sleep(0.1)
    return False


# Connections


@pytest.mark.xdist_group("timing")
@pytest.mark.parametrize(
    "target", ["/login", "/api/v1/repos", "/api/repos/create", "/api/validate-yaml", f"{REPO}/commits"]
)
def test_clients_without_a_token_cannot_hold_connections_with_slow_bodies(root: Path, target: str) -> None:
    create_token(root)
    head = raw.head("POST", target, {**JSON, "Content-Length": "10000"})
    with Server(root, ("--max-connections", "16")) as server, contextlib.ExitStack() as stack:
        held = [stack.enter_context(raw.connect(server.url)) for _ in range(16)]
        for connection in held:
            connection.sendall(head + b'{"content": "')

        def drip() -> None:
            for connection in held:
                with contextlib.suppress(OSError):
                    connection.send(b"x")

        with again_and_again(drip, 2):
            assert is_served(server, HEADERS_END + SLACK), "they hold all connections"
            said = [raw.drain(connection, 300) for connection in held]
        assert {raw.status(answer) for answer in said} <= {408, 401, 0}
        assert any(raw.status(answer) for answer in said), "none of them heard why"


@pytest.mark.xdist_group("timing")
def test_heads_that_never_end_give_way_to_others(root: Path) -> None:
    begun = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
    with Server(root, ("--max-connections", "8")) as server, contextlib.ExitStack() as stack:
        held: list[socket.socket] = []

        def connect() -> socket.socket:
            connection = stack.enter_context(raw.connect(server.url))
            connection.sendall(begun)
            return connection

        def hold() -> None:
            for n, connection in enumerate(held):
                try:
                    connection.send(b"x")
                except OSError:
                    held[n] = connect()

        held += [connect() for _ in range(24)]
        # However many of them come back: they wait in line like all clients.
        with again_and_again(hold, 1):
            assert all(is_served(server, 4 * SLACK) for _ in range(3))


@pytest.mark.xdist_group("timing")
def test_connections_that_are_kept_for_later_give_way_to_others(root: Path) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Server(root, ("--max-connections", "4")) as server, contextlib.ExitStack() as stack:
        kept = [stack.enter_context(raw.connect(server.url)) for _ in range(4)]

        def keep() -> None:
            for connection in kept:
                with contextlib.suppress(OSError):
                    connection.sendall(ask)
                    connection.recv(1 << 16)

        keep()
        with again_and_again(keep, 3):
            assert is_served(server, SLACK), "connections that nobody uses keep others out"
        ended = [raw.is_closed(connection, 0.2) for connection in kept]
        assert not all(ended), "more were closed than had to be"


@pytest.mark.xdist_group("timing")
def test_what_is_being_answered_does_not_give_way(root: Path) -> None:
    body = form({"message": "slow"}, {"x.bin": os.urandom(200_000)})
    head = raw.head("POST", f"{REPO}/commits", {"Content-Type": FORM, "Content-Length": str(len(body))})
    with Server(root, ("--max-connections", "2")) as server, raw.connect(server.url, 60) as upload:
        upload.sendall(head + body[:100_000])
        with ThreadPoolExecutor(6) as pool:
            others = pool.map(lambda _: is_served(server, SLACK), range(12))
            # For longer than a connection without a request may be idle.
            for start in range(100_000, 130_000, 10_000):
                time.sleep(1)
                upload.sendall(body[start : start + 10_000])
            assert all(others)
        upload.sendall(body[130_000:])
        assert raw.status(upload.recv(1 << 16)) == 201


@pytest.mark.xdist_group("timing")
def test_one_client_takes_no_more_than_its_share_of_the_connections(root: Path) -> None:
    body = form({"message": "slow"}, {"x.bin": b"y" * 1000})
    head = raw.head("POST", f"{REPO}/commits", {"Content-Type": FORM, "Content-Length": str(len(body))})
    options = ("--max-connections", "16", "--max-connections-per-address", "4")
    with Server(root, options) as server, contextlib.ExitStack() as stack:
        address = urlsplit(server.url)

        def connect(source: str) -> socket.socket:
            to = (address.hostname, address.port)
            return stack.enter_context(socket.create_connection(to, 10, source_address=(source, 0)))

        held = [connect("127.0.0.2") for _ in range(4)]
        for connection in held:
            connection.sendall(head + body[:100])
        time.sleep(0.5)
        for _ in range(3):
            more = connect("127.0.0.2")
            with contextlib.suppress(OSError):
                more.sendall(CANARY)
            assert raw.status(raw.drain(more)) in (0, 503), "a fifth connection is answered"
        assert is_served(server, SLACK), "another client is kept out"
        # Those that were there are not hurt, and their end makes room.
        for connection in held:
            connection.sendall(body[100:])
            assert raw.status(connection.recv(1 << 16)) in (201, 422), "it was hurt"
            connection.close()
        again = connect("127.0.0.2")
        again.sendall(CANARY)
        assert raw.status(raw.drain(again)) == 200


def test_a_client_hears_why_its_upload_is_refused_and_cannot_send_for_ever(root: Path) -> None:
    create_token(root)
    body = os.urandom(6 << 20)
    target = f"/ada/gpt.git/info/lfs/objects/{'0' * 64}"
    with Server(root) as server:
        head = raw.head("PUT", target, {"Content-Length": str(len(body))})
        for _ in range(5):
            assert raw.status(raw.exchange(server.url, head + body)) == 401, "the answer was lost"
        sent = 0
        with raw.connect(server.url) as connection, contextlib.suppress(OSError):
            connection.sendall(raw.head("PUT", target, {"Transfer-Encoding": "chunked"}))
            while sent < 256 << 20:
                connection.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
                sent += 1 << 20
        assert sent < 200 << 20, "what nobody reads is taken on and on"


# Open files


@pytest.mark.xdist_group("timing")
@pytest.mark.parametrize("hard", [96, 4000])
def test_connections_leave_the_server_enough_open_files(root: Path, hard: int) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))

    with Server(root, before=few) as server, contextlib.ExitStack() as stack:
        assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0] == hard, "the limit is not used up"
        body = form({"message": "slow"}, {"x.bin": os.urandom(20_000)})
        head = raw.head("POST", f"{REPO}/commits", {"Content-Type": FORM, "Content-Length": str(len(body))})
        held = []
        for _ in range(150):
            held.append(stack.enter_context(raw.connect(server.url, 30)))
            # One that has asked for nothing yet would have to give way to the next.
            held[-1].sendall(head + body[:10_000])
        time.sleep(2)
        # The first that came have what they need to end.
        for connection, end in zip(held[:3], (201, 422, 422), strict=True):
            connection.sendall(body[10_000:])
            assert raw.status(connection.recv(1 << 16)) == end, "there are no files left to answer with"


# Rights of files


def modes(top: Path) -> dict[str, int]:
    return {str(p.relative_to(top)): stat.S_IMODE(p.lstat().st_mode) for p in [top, *top.rglob("*")]}


def test_what_the_server_makes_is_its_own(root: Path) -> None:
    old = os.umask(0o022)
    try:
        with Server(root) as server:
            assert server.send("POST", "/api/v1/repos", {"name": "bob/made"}).status == 201
            for repo in ("bob/made", "ada/gpt"):
                body = form({"message": "x", "branch": "fresh"}, {"x.bin": os.urandom(5000)})
                path = f"/api/v1/repos/{repo}/commits"
                if repo == "bob/made":
                    body = form({"message": "x"}, {"x.bin": os.urandom(5000)})
                answer = server.ask("POST", path, body, {"Content-Type": FORM})
                assert answer.status in (201, 404, 422), answer.body
            for path, mode in {**modes(root / "bob"), **modes(root / ".mdl-serve")}.items():
                assert mode & 0o077 == 0, f"{path}: {mode:o}"
        with Server(root, ("--umask", "027")) as server:
            assert server.send("POST", "/api/v1/repos", {"name": "eve/made"}).status == 201
            assert modes(root / "eve")["made"] == 0o750
    finally:
        os.umask(old)
    for wrong in ("700", "999", "x", "-1"):
        argv = [str(binary()), "serve", "--root", str(root), "--umask", wrong]
        assert subprocess.run(argv, capture_output=True, timeout=20).returncode == 2, wrong


def test_tokens_that_others_may_write_are_not_trusted(root: Path) -> None:
    create_token(root)
    state = root / ".mdl-serve"
    tokens = state / "tokens.json"
    argv = [str(binary()), "serve", "--root", str(root), "--listen", "127.0.0.1:0"]
    for mode in (0o666, 0o620):
        tokens.chmod(mode)
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, said = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"it serves with tokens of mode {mode:o}")
        assert process.returncode not in (0, 101), said
        assert "listening" not in out
        assert "tokens.json" in said
    tokens.chmod(0o600)
    with Server(root) as server:
        assert "other users can get at" not in logged(server)
    state.chmod(0o755)
    with Server(root) as server:
        assert "other users can get at" in logged(server)


def test_it_says_so_when_it_runs_as_root(root: Path) -> None:
    with Server(root) as server:
        assert ("runs as root" in logged(server)) == (os.getuid() == 0)


def test_a_signal_is_heeded_from_the_first_moment_on(root: Path) -> None:
    for _ in range(scale.rounds(6, 20)):
        server = Server(root).start()
        assert server.stop() == 0, "it stops by itself, in order"


# The sandbox


def test_nothing_but_what_is_served_can_be_opened(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    fill(elsewhere, "ada/early", "early")
    fill(elsewhere, "ada/late", "late")
    split = Mdl.init(root / "ada/split", "--bare")
    (elsewhere / "packs").mkdir()
    (root / "ada/split/packs").symlink_to(elsewhere / "packs")
    (root / "ada/early").symlink_to(elsewhere / "ada/early")
    readme = "/resolve/main/README.md"
    with Server(root) as server:
        if "sandbox: not available" in logged(server):
            pytest.skip("this kernel has no Landlock")
        assert "sandbox: landlock" in logged(server)
        assert "all the same" not in logged(server)
        # What was there at the start is served, wherever it is.
        assert server.get(f"/ada/early{readme}").body == b"# early\n"
        body = form({"message": "x"}, {"x.bin": os.urandom(5000)})
        made = server.ask("POST", "/api/v1/repos/ada/split/commits", body, {"Content-Type": FORM})
        assert made.status == 201, made.body
        # As if a request had talked the server into it: a way out that was not there.
        (root / "ada/late").symlink_to(elsewhere / "ada/late")
        answer = server.get(f"/ada/late{readme}")
        assert answer.status >= 400
        assert b"late" not in answer.body
        assert "start it again" in logged(server)
        head = root / "ada/gpt/refs/heads/out"
        head.symlink_to(elsewhere / "ada/late/refs/heads/main")
        assert server.get("/ada/gpt/resolve/out/README.md").status >= 400
        head.unlink()
        server.stop()
        server.start()
        assert server.get(f"/ada/late{readme}").body == b"# late\n"
    split.fsck()
    with Server(root, ("--no-sandbox",)) as server:
        assert "no sandbox" in logged(server)
        (root / "ada/later").symlink_to(elsewhere / "ada/late")
        assert server.get(f"/ada/later{readme}").body == b"# late\n"


# Encryption


@pytest.fixture
def encrypted(root: Path, tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server with a certificate of its own making."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    argv += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    try:
        subprocess.run(argv, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    options = ("--tls-cert", str(certificate), "--tls-key", str(key), "--max-connections", "16")
    with Server(root, options) as server:
        yield server, certificate


def ask_encrypted(server: Server, certificate: Path, within: float, version: ssl.TLSVersion | None = None) -> int:
    """The status of a request over TLS."""
    context = ssl.create_default_context(cafile=str(certificate))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    with (
        raw.connect(server.url, within) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(CANARY)
        return raw.status(raw.drain(connection))


def test_what_is_no_handshake_ends_the_connection_and_hurts_nobody(encrypted: tuple[Server, Path]) -> None:
    server, certificate = encrypted
    assert ask_encrypted(server, certificate, 10) == 200
    assert ask_encrypted(server, certificate, 10, ssl.TLSVersion.TLSv1_2) == 200
    hello = client_hello("localhost")
    assert hello[:1] == b"\x16"
    for what, data in {
        "plain HTTP": CANARY,
        "nothing": b"",
        "noise": os.urandom(4096),
        "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
        "a record that is too long": b"\x16\x03\x01\xff\xff" + bytes(70_000),
        "half a hello": hello[: len(hello) // 2],
        "a hello twice": hello + hello,
        "a hello with noise in it": hello[:60] + os.urandom(40) + hello[100:],
        "data instead": b"\x17\x03\x03\x00\x10" + bytes(16),
        "SSL 2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(40),
        "a long name": client_hello("a" * 60 + ".example"),
        "an odd name": client_hello("xn--odd.example"),
    }.items():
        with raw.connect(server.url, 20) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            said = raw.drain(connection)
        assert b"HTTP/1.1 200" not in said, what
    assert ask_encrypted(server, certificate, 10) == 200
    assert "panicked" not in logged(server)


def client_hello(name: str) -> bytes:
    """What a client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


@pytest.mark.xdist_group("timing")
def test_handshakes_that_never_end_give_way_to_others(encrypted: tuple[Server, Path]) -> None:
    server, certificate = encrypted
    half = client_hello("localhost")[:50]
    with contextlib.ExitStack() as stack:
        held: list[socket.socket] = []

        def flood() -> None:
            while len(held) < 400:
                connection = stack.enter_context(raw.connect(server.url))
                connection.sendall(half)
                held.append(connection)
                if len(held) % 40 == 0:
                    return

        flood()
        with again_and_again(flood, 0.5):
            for _ in range(3):
                assert ask_encrypted(server, certificate, 60) == 200
