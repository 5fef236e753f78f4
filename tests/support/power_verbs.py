"""Commands to cut the power in: every one that writes, as steps on the repositories of one disk.

A step runs on the disk that is recorded and, where it was cut off, again on what the cut has left.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from .cli import Mdl, copy_tree
from .power_check import Told, Versions, contents
from .power_site import RUNS, SERVED, Site


def write_in_the_work_tree(site: Site) -> None:
    """As a program that is done before the last two seconds: what it wrote may count as known, and was never synced."""
    tree = site.repo.repo
    copy_tree(site.version(11), tree)
    for path in tree.rglob("*"):
        if path.is_file() and ".mdl" not in path.parts:
            os.utime(path, (time.time() - 60,) * 2)


def command(*args: str) -> Callable[[Site], None]:
    """One command on `repo`."""

    def run(site: Site) -> None:
        site.run(*args)

    return run


def commit(n: int, *options: str) -> Callable[[Site], None]:
    return lambda site: site.run("commit", site.version(n), "-m", f"v{n}", "--allow-empty", *options)


def clone(*options: str) -> Callable[[Site], None]:
    def run(site: Site) -> None:
        site.origin.run("clone", *options, site.origin.repo, site.root / "new", repo_flag=False)

    return run


def first(site: Site) -> None:
    mdl = site.at("new")
    if not Told.by(mdl).there:
        Mdl.init(mdl.repo)
    mdl.commit(site.version(1), "v1", "--allow-empty")


def push(*what: str) -> Callable[[Site], None]:
    def run(site: Site) -> None:
        site.origin.run("push", site.root / "bare", *what)

    return run


def push_over_http(site: Site) -> None:
    with site.server() as server:
        site.origin.run("push", f"{server.url}/{SERVED}", "main", "dev", env={"MDL_TOKEN": server.token or ""})


def commit_over_http(site: Site) -> None:
    """As a tar; it is acknowledged by the answer, not by the server's end."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        tar.add(site.version(12), arcname=".")
    with site.server() as server:
        path = f"/api/v1/repos/{SERVED}/commits?meta=%7B%22step%22%3A12,%22allow_empty%22%3Atrue%7D"
        answer = server.ask("POST", path, body.getvalue(), {"Content-Type": "application/x-tar"})
        assert answer.status == 201, answer.body
        server.kill()


def upload_over_http(site: Site) -> None:
    """A file sent on its own, then a commit that names it."""
    path = f"/api/v1/repos/{SERVED}"
    data = (site.version(13) / "model.safetensors").read_bytes()
    with site.server() as server:
        upload = server.send("POST", f"{path}/uploads", {"size": len(data)}).json()["id"]
        headers = {"Upload-Offset": "0", "Content-Type": "application/octet-stream"}
        assert server.ask("PATCH", f"{path}/uploads/{upload}", data, headers).status < 300
        named = [{"path": "model.safetensors", "upload": upload}]
        answer = server.send("POST", f"{path}/commits", {"step": 13, "uploads": named, "allow_empty": True})
        assert answer.status == 201, answer.body
        server.kill()


def watch(*options: str, of: str) -> Callable[[Site], None]:
    def run(site: Site) -> None:
        source = (site.root if of == "disk" else site.elsewhere) / "runs"
        argv = site.repo.argv("--json", "watch", source, "--once", "--settle", "0", *options)
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=site.repo.environment())
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "committed":
                site.acknowledged(event["commit"])
        assert process.wait() == 0
        process.stdout.close()

    return run


def put(rank: int) -> Callable[[Site], None]:
    """A rank's part of a version: half of its files."""

    def run(site: Site) -> None:
        whole, part = site.version(14), site.elsewhere / "parts" / str(rank)
        for path in sorted(p for p in whole.rglob("*") if p.is_file())[rank::2]:
            (part / path.relative_to(whole)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, part / path.relative_to(whole))
        site.run("shard", "put", "--session", "s/1", "--rank", str(rank), part)

    return run


def checked_out_in_part(site: Site) -> None:
    """Contents that a partial clone lacks come when they are needed."""
    site.at("some").run("checkout", "main")


def to_a_directory(site: Site) -> None:
    site.run("checkout", "dev", "--to", site.root / "out", "--force")


def to_a_new_branch(site: Site) -> None:
    """The branch is made first; where that much is there, the command says so."""
    there = (site.repo.store / "refs" / "heads" / "side").exists()
    site.run("switch", *(["side"] if there else ["-c", "side", "main~2"]), "--force")


def renamed(site: Site) -> None:
    """The new name comes first, and then the old one goes; where both are there, the command says so."""
    if (site.repo.store / "refs" / "heads" / "new" / "dev").exists():
        site.run("branch", "-d", "new/dev")
    site.run("branch", "-m", "dev", "new/dev")


def neither_name(site: Site, _: Versions) -> list[str]:
    """A rename is not one step on the disk, but one of the names is always there."""
    heads = site.repo.store / "refs" / "heads"
    return [] if (heads / "dev").is_file() or (heads / "new" / "dev").is_file() else ["dev is gone under both names"]


def removed_for_nothing(site: Site, versions: Versions) -> list[str]:
    """An original that is not whole any more must be a version that main leads to."""
    have = [versions.known.get(str(entry["id"])) for entry in site.repo.log("main")]
    runs = {n: contents(site.version(n)) for n in RUNS}
    lost = [
        n
        for n, files in runs.items()
        if contents(site.root / "runs" / f"checkpoint-{n}") != files and files not in have
    ]
    return [f"checkpoint-{n} is not whole, and in no version" for n in lost]


def in_steps(*argvs: tuple[str, ...]) -> tuple[Callable[[Site], None], ...]:
    return tuple(command(*argv) for argv in argvs)


@dataclass(frozen=True)
class Verb:
    """Steps, each acknowledged when it returns; which repositories they are about."""

    name: str
    steps: tuple[Callable[[Site], None], ...]
    repos: tuple[str, ...] = ("repo",)
    loose: bool = False
    """Whether files of the work tree were written by another program, and not synced."""
    gone: bool = False
    """Whether versions may lose their contents."""
    beside: tuple[str, ...] = ()
    """Further directories on the disk whose files count."""
    also: Callable[[Site, Versions], list[str]] = lambda *_: []
    """What else is wrong after a cut."""


VERBS = (
    Verb("init, first commit", (first,), ("new",)),
    Verb("commit DIR", (commit(11), commit(12, "--branch", "dev"))),
    Verb("commit", (write_in_the_work_tree, command("commit", "-m", "mine", "--allow-empty")), loose=True),
    Verb("checkout", in_steps(("checkout", "main~1"), ("checkout", "main"))),
    Verb("checkout --to", (to_a_directory,), beside=("out",)),
    Verb(
        "checkout --only",
        in_steps(
            ("checkout", "dev", "--only", "sub/*", "--only", "config.json"),
        ),
    ),
    Verb("switch", in_steps(("switch", "dev"), ("switch", "main"))),
    Verb("switch -c", (to_a_new_branch,)),
    Verb("merge", in_steps(("reset", "--hard", "main~2"), ("merge", "origin/main"))),
    Verb("reset", in_steps(("reset", "--hard", "first"), ("reset", "--hard", "main@{1}"))),
    Verb("branch", in_steps(("branch", "a", "dev"), ("branch", "-D", "a"))),
    Verb("branch -m", (renamed,), also=neither_name),
    Verb("tag", in_steps(("tag", "t"), ("tag", "a", "dev", "-m", "annotated"), ("tag", "-d", "first"))),
    Verb("prune", in_steps(("prune", "--keep-latest", "1"), ("gc", "--prune-now")), gone=True),
    Verb("undo", in_steps(("prune", "--keep-latest", "1"), ("prune", "--undo"))),
    Verb(
        "gc",
        in_steps(
            ("gc", "--prune-now"),
        ),
    ),
    Verb("compact", in_steps(("compact",), ("gc", "--prune-now"))),
    Verb("config, remote", in_steps(("config", "user.name", "ada"), ("remote", "add", "far", "/nowhere"))),
    Verb("shard", (put(0), put(1), command("shard", "join", "--session", "s/1", "--ranks", "2", "-m", "joined"))),
    Verb("clone", (clone(),), ("new",)),
    Verb("clone --only", (clone("--only", "*.json"),), ("new",)),
    Verb("fetch", in_steps(("fetch",))),
    Verb("fetch into a partial clone", (lambda site: site.at("some").run("fetch"), checked_out_in_part), ("some",)),
    Verb("pull", in_steps(("pull",))),
    Verb("push", (push("main", "dev"), push("--tags", "main")), ("bare",)),
    Verb("push over HTTP", (push_over_http,), (f"served/{SERVED}",)),
    Verb("commit over HTTP", (commit_over_http,), (f"served/{SERVED}",)),
    Verb("upload over HTTP", (upload_over_http,), (f"served/{SERVED}",)),
    Verb("watch", (watch(of="elsewhere"),)),
    Verb("watch --remove", (watch("--remove", of="disk"),), beside=("runs",), also=removed_for_nothing),
)
