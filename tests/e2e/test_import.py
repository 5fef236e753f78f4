"""`mdl import`: runs' folders, W&B artifacts, the Hub and its cache become versions, verified, and only once."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support import makers
from support.cli import CORRUPT, NOT_FOUND, USAGE, USER, Mdl, assert_same, files_of
from support.imports import history, imported, md5, sha256, weights
from support.server import Server

# A run's folder


def test_a_folder_of_checkpoints_in_the_order_of_steps(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    for step in (1000, 90, 500):
        folder = makers.write_small_checkpoint(source / f"checkpoint-{step}", step)
        log = [{"loss": 1 / step, "step": step}, {"eval_loss": 2 / step, "eval_runtime": 1.0, "step": step}]
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": 0.5, "log_history": log}))
    (source / "runs").mkdir()
    (source / "runs" / "events").write_text("no tensors")
    (source / "tmp-checkpoint-2000").mkdir()
    (source / "tmp-checkpoint-2000" / "model.safetensors").write_text("half")
    planned = imported(mdl, source, "--dry-run")
    assert [v["step"] for v in planned["versions"]] == [90, 500, 1000]
    assert mdl.commit_id("main") is None
    report = imported(mdl, source)
    assert report["kind"] == "folder"
    assert [v["source"] for v in report["imported"]] == ["checkpoint-90", "checkpoint-500", "checkpoint-1000"]
    assert any("tmp-checkpoint-2000" in note for note in report["notes"])
    entries = history(mdl)
    assert [e["step"] for e in entries] == [90, 500, 1000]
    assert entries[0]["metrics"] == {"loss": 1 / 90, "eval_loss": 2 / 90}
    assert_same(source / "checkpoint-500", mdl.checkout("main@step=500", tmp_path / "out"))
    # Again: nothing; and a watch knows them as well.
    again = imported(mdl, source)
    assert (again["imported"], again["known"]) == ([], 3)
    mdl.run("watch", source, "--once", "--settle", "0")
    assert len(history(mdl)) == 3
    # What has other contents now is another version.
    makers.write_small_checkpoint(source / "checkpoint-500", 77)
    assert [v["source"] for v in imported(mdl, source)["imported"]] == ["checkpoint-500"]


def test_torn_checkpoints_of_a_folder_are_left_out(mdl: Mdl, source: Path) -> None:
    for step in (1, 2):
        makers.write_small_checkpoint(source / f"checkpoint-{step}", step)
    torn = source / "checkpoint-2" / "model.safetensors"
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-9])
    report = imported(mdl, source)
    assert [v["source"] for v in report["imported"]] == ["checkpoint-1"]
    assert any("checkpoint-2" in note for note in report["notes"])
    torn.write_bytes(whole)
    assert [v["source"] for v in imported(mdl, source)["imported"]] == ["checkpoint-2"]
    # One that is torn later was not "there already".
    torn.write_bytes(whole[:-9])
    again = imported(mdl, source)
    assert (again["imported"], again["known"]) == ([], 1)
    assert any("checkpoint-2" in note for note in again["notes"])


def test_links_in_a_folder_are_followed_and_what_they_point_at_counts(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    makers.write_small_checkpoint(tmp_path / "elsewhere", 5)
    makers.write_small_checkpoint(source / "checkpoint-1", 1)
    (source / "checkpoint-1" / "optimizer").symlink_to(tmp_path / "elsewhere")
    assert len(imported(mdl, source)["imported"]) == 1
    assert_same(tmp_path / "elsewhere", mdl.checkout("main", tmp_path / "out") / "optimizer")
    assert imported(mdl, source)["known"] == 1
    makers.write_small_checkpoint(tmp_path / "elsewhere", 6)
    assert len(imported(mdl, source)["imported"]) == 1


# W&B


def artifact(folder: Path, files: dict[str, bytes]) -> Path:
    contents = {}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        digest = base64.b64encode(hashlib.md5(data).digest()).decode()
        contents[name] = {"digest": digest, "size": len(data)}
    manifest = {"version": 1, "storagePolicy": "wandb-storage-policy-v1", "contents": contents}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_artifacts_of_wandb_by_their_versions(mdl: Mdl, tmp_path: Path) -> None:
    for n in (10, 9):
        artifact(tmp_path / "artifacts" / f"model:v{n}", {"model.safetensors": weights(n, tmp_path), "a/b.txt": b"b"})
    report = imported(mdl, tmp_path / "artifacts")
    assert report["kind"] == "wandb"
    assert [v["source"] for v in report["imported"]] == ["model:v9", "model:v10"]
    out = mdl.checkout("main", tmp_path / "out")
    assert (out / "model.safetensors").read_bytes() == weights(10, tmp_path)
    assert sorted(files_of(out)) == ["a/b.txt", "model.safetensors"]
    one = artifact(tmp_path / "one:v0", {"model.safetensors": weights(3, tmp_path)})
    (one / "model.safetensors").write_bytes(b"x")
    mdl.run("import", one, "--branch", "one", code=CORRUPT).complains("model.safetensors of one:v0 is damaged")
    # What is not beside the manifest may be in W&B's cache.
    oid = md5(weights(3, tmp_path))
    cached = tmp_path / "cache" / "obj" / "md5" / oid[:2] / oid[2:]
    cached.parent.mkdir(parents=True)
    cached.write_bytes(weights(3, tmp_path))
    (one / "model.safetensors").unlink()
    mdl.run("import", one, "--branch", "one", code=CORRUPT).complains("there is no model.safetensors")
    imported(mdl, one, "--branch", "one", "--cache", tmp_path / "cache")
    assert (mdl.checkout("one", tmp_path / "out1") / "model.safetensors").read_bytes() == weights(3, tmp_path)


def test_artifacts_without_a_manifest_as_wandb_leaves_them(mdl: Mdl, tmp_path: Path) -> None:
    for n in (10, 9):
        folder = tmp_path / "artifacts" / f"model:v{n}"
        (folder / "a").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(weights(n, tmp_path))
        (folder / "a" / "b.txt").write_bytes(b"b")
    report = imported(mdl, tmp_path / "artifacts")
    assert (report["kind"], [v["source"] for v in report["imported"]]) == ("wandb", ["model:v9", "model:v10"])
    assert sum("could not be verified" in note for note in report["notes"]) == 2
    assert sorted(files_of(mdl.checkout("main", tmp_path / "out"))) == ["a/b.txt", "model.safetensors"]
    one = imported(mdl, tmp_path / "artifacts" / "model:v9", "--branch", "one")
    assert [v["source"] for v in one["imported"]] == ["model:v9"]
    (tmp_path / "artifacts" / "model:v9" / "model.safetensors").write_bytes(weights(9, tmp_path)[:-9])
    mdl.run("import", tmp_path / "artifacts", "--branch", "torn", code=USER).complains("model.safetensors")


def test_references_of_an_artifact_are_noted(mdl: Mdl, tmp_path: Path) -> None:
    folder = artifact(tmp_path / "model:v0", {"model.safetensors": weights(1, tmp_path), "ref.txt": b"there"})
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["contents"]["ref.txt"] |= {"digest": "an-etag", "ref": "s3://bucket/ref.txt"}
    manifest["contents"]["away.txt"] = {"digest": "an-etag", "ref": "s3://bucket/away.txt"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    notes = imported(mdl, folder)["notes"]
    assert any("ref.txt of model:v0 could not be verified" in note for note in notes)
    assert any("left out away.txt" in note for note in notes)
    assert sorted(files_of(mdl.checkout("main", tmp_path / "out"))) == ["model.safetensors", "ref.txt"]


# The Hub


class Listening:
    """A server that notes which tokens it gets, and has nothing."""

    def __init__(self) -> None:
        tokens = self.tokens = list[str | None]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                tokens.append(self.headers.get("Authorization"))
                self.send_response(404)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def test_the_hubs_token_goes_to_its_own_endpoint_alone(mdl: Mdl) -> None:
    listening = Listening()
    token = {"HF_TOKEN": "hf_secret"}
    mdl.run("import", f"{listening.url}/ada/gpt", env=token, code=NOT_FOUND).complains("OWNER/NAME")
    assert listening.tokens == [None]
    mdl.run("import", "ada/gpt", "--endpoint", listening.url, env=token, code=NOT_FOUND)
    mdl.run("import", f"{listening.url}/ada/gpt", env=token | {"HF_ENDPOINT": listening.url}, code=NOT_FOUND)
    assert listening.tokens[1:] == ["Bearer hf_secret"] * 2


def test_passwords_in_an_address_are_not_repeated(mdl: Mdl) -> None:
    done = mdl.run("import", "https://user:hunter2@host.example/a/b", code=USAGE)
    assert "hunter2" not in done.out + done.err


def test_a_path_that_is_missing_is_no_model(mdl: Mdl, tmp_path: Path) -> None:
    (mdl.repo / "runs").mkdir()
    mdl.run("import", "runs/gpt2", code=NOT_FOUND).complains("directory", "runs/gpt2")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Server, Mdl]]:
    origin = Mdl.init(tmp_path / "root" / "ada/gpt", "--bare")
    folder = tmp_path / "folder"
    for step in (1, 2, 3):
        makers.write_small_checkpoint(folder, step)
        (folder / "README.md").write_text(f"# version {step}\n")
        origin.commit(folder, f"version {step}", "--step", str(step))
    origin.run("tag", "v2", "main~1")
    with Server(tmp_path / "root") as server:
        yield server, origin


def test_a_model_of_a_hub_with_its_revisions(mdl: Mdl, hub: tuple[Server, Mdl], tmp_path: Path) -> None:
    server, origin = hub
    report = imported(mdl, "ada/gpt", "--endpoint", server.url)
    assert (report["kind"], len(report["imported"]), report["tags"]) == ("hub", 3, ["v2"])
    assert [e["message"] for e in history(mdl)] == ["version 1", "version 2", "version 3"]
    for rev in ("main", "v2", "main~2"):
        ours = mdl.checkout(rev, tmp_path / f"ours-{rev}")
        assert_same(origin.checkout(rev, tmp_path / f"theirs-{rev}"), ours)
    assert not (mdl.store / "import").exists()
    # By URL, and by HF_ENDPOINT, it is the same.
    assert imported(mdl, f"{server.url}/ada/gpt")["known"] == 3
    known = mdl.json("import", "ada/gpt", env={"HF_ENDPOINT": server.url})["known"]
    assert known == 3
    mdl.run("import", "ada/none", "--endpoint", server.url, code=NOT_FOUND).complains("ada/none")


def test_a_hubs_download_goes_on_after_a_kill(mdl: Mdl, hub: tuple[Server, Mdl], tmp_path: Path) -> None:
    """What a killed run left in its directory is used if it is whole, gone on with, or thrown away if it is wrong."""
    server, origin = hub
    first = origin.checkout("main~2", tmp_path / "first")
    data = (first / "model.safetensors").read_bytes()
    own = sha256(b"ada/gpt")[:16]
    scratch = mdl.store / "import" / own
    scratch.mkdir(parents=True)
    (scratch / f"{sha256(data)}.part").write_bytes(data[: len(data) // 2])
    imported(mdl, "ada/gpt", "--endpoint", server.url)
    other = Mdl.init(tmp_path / "other")
    (other.store / "import" / own).mkdir(parents=True)
    (other.store / "import" / own / f"{sha256(data)}.part").write_bytes(b"wrong" + data[5 : len(data) // 2])
    imported(other, "ada/gpt", "--endpoint", server.url)
    for repo in (mdl, other):
        assert_same(first, repo.checkout("main~2", tmp_path / f"out-{repo.repo.name}"))


def test_the_cache_of_huggingface_hub(mdl: Mdl, tmp_path: Path) -> None:
    cache = tmp_path / "models--ada--gpt"
    (cache / "blobs").mkdir(parents=True)
    (cache / "refs").mkdir()
    revisions = ["a" * 40, "b" * 40]
    for n, revision in enumerate(revisions):
        snapshot = cache / "snapshots" / revision
        snapshot.mkdir(parents=True)
        text = f"# {n}\n".encode()
        blob = hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()
        for name, oid, data in (
            ("model.safetensors", sha256(weights(n, tmp_path)), weights(n, tmp_path)),
            ("README.md", blob, text),
        ):
            (cache / "blobs" / oid).write_bytes(data)
            (snapshot / name).symlink_to(f"../../blobs/{oid}")
    (cache / "refs" / "main").write_text(revisions[0])
    report = imported(mdl, cache)
    assert report["kind"] == "hub-cache"
    # What main is comes last.
    assert [v["source"] for v in report["imported"]] == [revisions[1], revisions[0]]
    assert (mdl.checkout("main", tmp_path / "out") / "README.md").read_text() == "# 0\n"
    (cache / "blobs" / sha256(weights(1, tmp_path))).write_bytes(b"x")
    mdl.run("import", cache, "--branch", "again", code=CORRUPT).complains("model.safetensors is damaged")


def test_what_cannot_be_imported_is_said(mdl: Mdl, source: Path, tmp_path: Path) -> None:
    mdl.run("import", tmp_path / "nothing", code=NOT_FOUND).complains("nothing")
    mdl.run("import", source, "--from", "git-lfs", code=USER).complains("git")
    mdl.run("import", source, "--from", "svn", code=USAGE)
    mdl.run("import", source, "--revision", "main", code=USAGE).complains("--revision", "folder")
    mdl.run("import", source, "--from", "wandb", code=USER).complains("no artifact")
    assert imported(mdl, source)["imported"] == []
