"""The Hugging Face clients and git-lfs against a running server, at versions stored as deltas; bytes compared."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import makers
from support.cli import Mdl, assert_same
from support.server import Server, create_token

REPO = "ada/gpt"
STEPS = (100, 200, 300)
IMPORTS = """
import sys
from pathlib import Path
from huggingface_hub import *
from huggingface_hub import errors
"""


@pytest.fixture
def folders(tmp_path: Path) -> dict[int, Path]:
    """What was committed at each step: close to the step before, so that two of them are stored as deltas."""
    out = {}
    for n, step in enumerate(STEPS):
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        makers.write_small_checkpoint(folder, 1)
        weights = bytearray((folder / "model.safetensors").read_bytes())
        for at in range(len(weights) - 4 * 997 * n, len(weights), 997):
            weights[at] ^= 1
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "README.md").write_text(f"# step {step}\n")
        out[step] = folder
    return out


@pytest.fixture
def server(tmp_path: Path, folders: dict[int, Path]) -> Iterator[Server]:
    root = tmp_path / "root"
    root.mkdir()
    mdl = Mdl.init(root / REPO, "--bare")
    for step, folder in folders.items():
        mdl.commit(folder, f"step {step}", "--step", str(step))
    depths = [max(t["depth"] for t in mdl.tensors(f"main@step={step}").values()) for step in STEPS]
    assert [depth > 0 for depth in depths] == [False, True, True], f"not deltas: {depths}"
    token = create_token(root)
    with Server(root, token=token) as server:
        yield server


@pytest.fixture
def environment(tmp_path: Path, server: Server, request: pytest.FixtureRequest) -> dict[str, str]:
    """Environment of the clients: this server, a cache of their own, and no settings of the user's. They upload by the
    Xet protocol, as hf_xet is installed, or with the parameter "lfs" by that of git-lfs."""
    importlib.import_module("hf_xet")
    lfs = {"HF_HUB_DISABLE_XET": "1"} if getattr(request, "param", "xet") == "lfs" else {}
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": server.url,
        "HF_TOKEN": server.token or "",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "*",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        **lfs,
    }


Program = Callable[..., str]


@pytest.fixture
def program(tmp_path: Path, environment: dict[str, str]) -> Program:
    """Runs a program that uses huggingface_hub (its settings are read once a process); returns what it prints."""

    def run(text: str, *args: object, **extra: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(
            "import sys\nfrom pathlib import Path\nfrom huggingface_hub import *\nfrom huggingface_hub import errors\n"
            + text
        )
        argv = [sys.executable, str(path), *map(str, args)]
        done = subprocess.run(argv, env=environment | extra, capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def hf(tmp_path: Path, environment: dict[str, str]) -> Callable[..., str]:
    """Runs the `hf` command."""
    command = shutil.which("hf", path=str(Path(sys.executable).parent))
    assert command, "huggingface_hub is not installed; run `make venv`"

    def run(*args: object, **extra: str) -> str:
        argv = [command, *map(str, args)]
        done = subprocess.run(argv, env=environment | extra, capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    return run


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_cache(folder: Path) -> Path:
    """A folder without what `hf download --local-dir` notes in it."""
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return folder


@pytest.mark.parametrize("step", STEPS)
def test_hf_download_brings_every_version(hf: Any, folders: dict[int, Path], tmp_path: Path, step: int) -> None:
    out = tmp_path / "out"
    hf("download", REPO, "--revision", f"step-{step}", "--local-dir", out)
    assert_same(folders[step], without_cache(out))


def test_snapshots_and_files_come_by_name_step_and_id(
    program: Program, folders: dict[int, Path], tmp_path: Path
) -> None:
    text = """
for revision in ["step-100", "main", "step-200"]:
    print(snapshot_download("ada/gpt", revision=revision))
sha = HfApi().model_info("ada/gpt", revision="step-200").sha
assert len(sha) == 40, sha
print(snapshot_download("ada/gpt", revision=sha))
print(snapshot_download("ada/gpt", revision=sha, local_files_only=True))
print(hf_hub_download("ada/gpt", "model.safetensors", revision="step-100"))
print(hf_hub_download("ada/gpt", "notes/run.txt"))
"""
    lines = [Path(line) for line in program(text).splitlines()]
    for line, step in zip(lines, (100, 300, 200, 200, 200), strict=False):
        copy = tmp_path / f"copy-{line.name}"
        shutil.copytree(line, copy, dirs_exist_ok=True)
        assert_same(folders[step], copy)
    assert sha256(lines[5]) == sha256(folders[100] / "model.safetensors")
    assert lines[6].read_text() == (folders[300] / "notes" / "run.txt").read_text()


def test_metadata_of_safetensors_and_ranges_of_files(program: Program, folders: dict[int, Path]) -> None:
    text = """
fs = HfFileSystem()
print(sorted(fs.ls("ada/gpt@step-100", detail=False)))
with fs.open("ada/gpt@step-200/model.safetensors", "rb", block_size=4096) as f:
    f.seek(70_001)
    sys.stdout.write(f.read(9_000).hex() + "\\n")
print(fs.cat_file("ada/gpt@step-300/model.safetensors", start=11, end=40).hex())
print(get_safetensors_metadata("ada/gpt", revision="step-100").files_metadata["model.safetensors"].tensors
      ["layers.0.weight"].shape)
"""
    names, middle, start, shape = program(text).splitlines()
    assert names == str([f"{REPO}@step-100/{n}" for n in ("README.md", "config.json", "model.safetensors", "notes")])
    assert bytes.fromhex(middle) == (folders[200] / "model.safetensors").read_bytes()[70_001:79_001]
    assert bytes.fromhex(start) == (folders[300] / "model.safetensors").read_bytes()[11:40]
    assert shape == "[96, 96]"


def test_trees_refs_and_commits_are_listed(program: Program, folders: dict[int, Path]) -> None:
    text = """
api = HfApi()
api.create_branch("ada/gpt", branch="wild/one", revision="step-100")
api.create_branch("ada/gpt", branch="wild/one", exist_ok=True)
api.create_tag("ada/gpt", tag="v1", revision="step-200", tag_message="the best")
refs = api.list_repo_refs("ada/gpt")
print([b.name for b in refs.branches], [t.name for t in refs.tags])
assert refs.tags[0].target_commit == api.model_info("ada/gpt", revision="v1").sha
assert refs.branches[1].target_commit == api.model_info("ada/gpt", revision="wild/one").sha
print([c.title for c in api.list_repo_commits("ada/gpt", revision="main")])
files = {f.path: f for f in api.list_repo_tree("ada/gpt", recursive=True, revision="v1")}
print(sorted(files))
print(files["model.safetensors"].lfs.sha256)
info = api.get_paths_info("ada/gpt", ["notes/run.txt", "nope"], revision="wild/one", expand=True)
print([i.path for i in info], info[0].last_commit.title)
assert api.file_exists("ada/gpt", "config.json") and not api.file_exists("ada/gpt", "nope")
assert api.revision_exists("ada/gpt", "v1") and not api.revision_exists("ada/gpt", "v2")
api.delete_tag("ada/gpt", tag="v1")
api.delete_branch("ada/gpt", branch="wild/one")
print([m.id for m in api.list_models(search="gp")], api.whoami()["name"])
"""
    refs, commits, names, digest, info, models = program(text).splitlines()
    assert refs == "['main', 'wild/one'] ['v1']"
    assert commits == str([f"step {step}" for step in reversed(STEPS)])
    assert names == "['README.md', 'config.json', 'model.safetensors', 'notes', 'notes/run.txt']"
    assert digest == sha256(folders[200] / "model.safetensors")
    assert info == "['notes/run.txt'] step 100"
    assert models == "['ada/gpt'] tester"


@pytest.mark.parametrize("environment", ["xet", "lfs"], indirect=True)
def test_what_was_uploaded_comes_back(hf: Any, program: Program, folders: dict[int, Path], tmp_path: Path) -> None:
    (folders[200] / "big.txt").write_text("text " * 500_000)
    (folders[200] / "empty.bin").write_bytes(b"")
    hf("upload", "ada/new", folders[100], ".", "--commit-message", "first")
    hf("upload", "ada/new", folders[200], ".", "--commit-message", "second")
    hf("upload", "ada/new", folders[300] / "model.safetensors", "model.safetensors", "--revision", "side")
    for revision, step in (("main", 200), ("main~1", 100)):
        out = tmp_path / f"out-{revision}"
        hf("download", "ada/new", "--revision", revision, "--local-dir", out)
        assert_same(folders[step], without_cache(out))
    text = """
api = HfApi()
side = api.hf_hub_download("ada/new", "model.safetensors", revision="side")
assert Path(side).read_bytes() == Path(sys.argv[1]).read_bytes()
before = api.model_info("ada/new").sha
api.upload_folder(repo_id="ada/new", folder_path=sys.argv[2], delete_patterns="*.txt")
names = sorted(api.list_repo_files("ada/new"))
print(names)
api.delete_file("config.json", repo_id="ada/new")
api.delete_folder("notes", repo_id="ada/new")
done = api.create_commit("ada/new", [
    CommitOperationAdd("x/y.json", b"{}"),
    CommitOperationCopy("model.safetensors", "copy.safetensors"),
], commit_message="a copy", parent_commit=api.model_info("ada/new").sha)
assert api.model_info("ada/new").sha == done.oid
print(sorted(api.list_repo_files("ada/new")))
try:
    api.create_commit("ada/new", [CommitOperationAdd("z", b"z")], commit_message="stale", parent_commit=before)
    print("taken")
except errors.HfHubHTTPError as e:
    print(e.response.status_code)
try:
    api.delete_file("nope", repo_id="ada/new")
except errors.EntryNotFoundError:
    print("no such file")
print(api.upload_file(path_or_fileobj=b"{}", path_in_repo="x/y.json", repo_id="ada/new").oid == done.oid)
"""
    out = program(text, folders[300] / "model.safetensors", folders[100]).splitlines()
    want = ["README.md", "config.json", "empty.bin", "model.safetensors", "notes/run.txt"]
    assert out[0] == str(want), "what the patterns name is deleted unless it is uploaded as well"
    assert out[1] == "['README.md', 'copy.safetensors', 'empty.bin', 'model.safetensors', 'x/y.json']"
    assert out[2:] == ["412", "no such file", "True"]


def chunks_asked_for(server: Server) -> int:
    """Uploads that came by the Xet protocol."""
    assert server.log is not None
    return server.log.read_text().count("/v1/shards")


def test_chunks_that_files_and_uploads_share_are_put_together(program: Program, server: Server, tmp_path: Path) -> None:
    """The client remembers which chunks it has sent where; each upload here stands for itself."""
    folder = tmp_path / "shared"
    folder.mkdir()
    random = os.urandom(3 << 20)
    (folder / "one.bin").write_bytes(random + bytes(1 << 20) + random)
    (folder / "two.bin").write_bytes(random[1 << 20 :] + b"end")
    text = """
folder = Path(sys.argv[1])
api = HfApi()
for repo in ["ada/shared", "ada/again"]:
    api.create_repo(repo)
    api.upload_folder(repo_id=repo, folder_path=folder)
(folder / "two.bin").write_bytes(b"begin" + (folder / "two.bin").read_bytes())
api.upload_folder(repo_id="ada/shared", folder_path=folder)
api.upload_file(repo_id="ada/shared", path_or_fileobj=(folder / "two.bin").read_bytes(), path_in_repo="bytes.bin")
with (folder / "two.bin").open("rb") as file:
    api.upload_file(repo_id="ada/shared", path_or_fileobj=file, path_in_repo="stream.bin")
for repo in ["ada/shared", "ada/again"]:
    print(snapshot_download(repo))
"""
    shared, again = (Path(line) for line in program(text, folder).splitlines())
    assert chunks_asked_for(server) >= 3
    for name in ("one.bin", "two.bin"):
        assert sha256(shared / name) == sha256(folder / name), name
    for name in ("bytes.bin", "stream.bin"):
        assert sha256(shared / name) == sha256(folder / "two.bin"), name
    assert sha256(again / "one.bin") == sha256(folder / "one.bin")
    assert (again / "two.bin").read_bytes() == random[1 << 20 :] + b"end"
    left = [path for path in server.root.rglob("*") if path.is_file() and "xet" in path.parts]
    assert left == [], "chunks stay when their files are put together"


def test_models_are_pushed_and_come_back(program: Program, server: Server) -> None:
    text = """
class Model(ModelHubMixin):
    def __init__(self, width: int = 3):
        self.weights = bytes(range(256)) * width

    def _save_pretrained(self, save_directory):
        (save_directory / "model.safetensors").write_bytes(self.weights)

    @classmethod
    def _from_pretrained(cls, *, model_id, revision, **kwargs):
        model = cls(**kwargs.get("model_kwargs", {}))
        model.weights = Path(hf_hub_download(model_id, "model.safetensors", revision=revision)).read_bytes()
        return model

HfApi().create_repo("ada/fresh")
for revision, error in [("main", errors.EntryNotFoundError), ("none", errors.RevisionNotFoundError)]:
    try:
        hf_hub_download("ada/fresh", "README.md", revision=revision)
    except error:
        print("not there")
Model(7).push_to_hub("ada/mixin")
print(Model.from_pretrained("ada/mixin").weights == Model(7).weights)
"""
    assert program(text).splitlines() == ["not there", "not there", "True"]
    assert chunks_asked_for(server) == 1


def test_the_file_system_reads_and_writes(program: Program, server: Server) -> None:
    text = """
fs = HfFileSystem()
print([Path(name).name for name in sorted(fs.ls("ada/gpt", detail=False))])
with fs.open("ada/gpt/model.safetensors", "rb") as file:
    file.seek(8)
    print(file.read(1).decode())
with fs.open("ada/gpt/new.bin", "wb") as file:
    file.write(bytes(1 << 20))
print(fs.cat_file("ada/gpt/new.bin") == bytes(1 << 20), fs.info("ada/gpt/new.bin")["size"])
fs.rm("ada/gpt/new.bin")
print(fs.exists("ada/gpt/new.bin"))
"""
    lines = program(text).splitlines()
    assert lines == ["['README.md', 'config.json', 'model.safetensors', 'notes']", "{", "True 1048576", "False"]


def test_a_reader_may_not_send_chunks(server: Server) -> None:
    read = create_token(server.root, scope="read", repo="ada/*", name="reader")
    token = server.get(f"/api/models/{REPO}/xet-write-token/main").json()
    address = token["casUrl"].removeprefix(server.url)
    assert token["accessToken"] == server.token
    for who, status in ((read, 403), (None, 401)):
        other = dataclasses.replace(server, token=who)
        assert other.get(f"/api/models/{REPO}/xet-write-token/main").status == status
        assert other.ask("POST", f"{address}/v1/shards", b"").status == status
        assert other.ask("POST", f"{address}/v1/xorbs/default/{'0' * 64}", b"x").status == status
    for path, body, status in (
        ("/v1/shards", b"no shard", 422),
        ("/v1/xorbs/default/0", b"x", 422),
        (f"/v1/xorbs/default/{'0' * 64}", b"x", 200),
    ):
        answer = server.ask("POST", address + path, body)
        assert answer.status == status, answer.body
    assert server.ask("POST", f"{address[:-1]}/v1/shards", b"").status == 404


def test_a_server_without_tokens_takes_chunks(hf: Any, folders: dict[int, Path], tmp_path: Path) -> None:
    root = tmp_path / "open"
    root.mkdir()
    with Server(root, options=("--anonymous", "admin")) as server:
        extra = {"HF_ENDPOINT": server.url, "HF_TOKEN": ""}
        hf("upload", "ada/open", folders[100], ".", **extra)
        assert chunks_asked_for(server) == 1
        hf("download", "ada/open", "--local-dir", tmp_path / "out", **extra)
    assert_same(folders[100], without_cache(tmp_path / "out"))


def test_wrong_tokens_and_names_are_told_apart(program: Program, server: Server) -> None:
    read = create_token(server.root, scope="read", repo="ada/*", name="reader")
    text = """
def ended(f):
    try:
        f()
        return "done"
    except Exception as e:
        return type(e).__name__
api = HfApi()
print(ended(lambda: api.model_info("ada/gpt", token="mdl_wrong")))
print(ended(lambda: hf_hub_download("ada/gpt", "config.json", token=False)))
print(ended(lambda: hf_hub_download("ada/gpt", "nope.json")))
print(ended(lambda: hf_hub_download("ada/gpt", "config.json", revision="nope")))
print(ended(lambda: hf_hub_download("ada/nope", "config.json")))
print(ended(lambda: hf_hub_download("ada/gpt", "config.json", token=sys.argv[1])))
print(ended(lambda: api.upload_file(path_or_fileobj=b"x", path_in_repo="x", repo_id="ada/gpt", token=sys.argv[1])))
"""
    assert program(text, read).splitlines() == [
        "HfHubHTTPError",
        "RepositoryNotFoundError",
        "RemoteEntryNotFoundError",
        "RevisionNotFoundError",
        "RepositoryNotFoundError",
        "done",
        "HfHubHTTPError",
    ]


def test_curl_fetches_parts(server: Server, folders: dict[int, Path], tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is missing")
    url = f"{server.url}/{REPO}/resolve/step-200/model.safetensors"
    want = (folders[200] / "model.safetensors").read_bytes()

    def fetch(*options: str) -> bytes:
        argv = [curl, "-sS", "--fail", "-H", f"Authorization: Bearer {server.token}", *options, url]
        return subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout

    assert fetch() == want
    assert fetch("-r", "100-299") == want[100:300]
    assert fetch("-r", "-77") == want[-77:]
    part = tmp_path / "part"
    part.write_bytes(want[:5000])
    fetch("-C", "-", "-o", str(part))
    assert part.read_bytes() == want


def test_git_lfs_pushes_and_pulls(server: Server, environment: dict[str, str], tmp_path: Path) -> None:
    if not (shutil.which("git") and shutil.which("git-lfs")):
        pytest.skip("git-lfs is missing")
    token = create_token(server.root, scope="write", repo="ada/*", name="pusher")
    bare, first, second = tmp_path / "remote.git", tmp_path / "first", tmp_path / "second"
    url = f"{server.url.replace('://', f'://me:{token}@')}/{REPO}.git/info/lfs"

    def git(*args: object, at: Path | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = ["git", "-C", str(at or tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", *map(str, args)]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    git("init", "--bare", "-b", "main", bare)
    git("clone", bare, first)
    git("lfs", "install", "--local", at=first)
    git("config", "lfs.url", url, at=first)
    git("lfs", "track", "*.bin", at=first)
    weights = {f"w{n}.bin": os.urandom(300_000 + n) for n in range(3)}
    for name, data in weights.items():
        (first / name).write_bytes(data)
    git("add", ".", at=first)
    git("commit", "-m", "weights", at=first)
    pushed = git("push", "origin", "HEAD:main", at=first)
    assert "error" not in pushed.stderr.lower(), pushed.stderr

    git("clone", bare, second)
    assert (second / "w0.bin").read_bytes().startswith(b"version https://git-lfs")
    git("lfs", "install", "--local", at=second)
    git("config", "lfs.url", url, at=second)
    git("lfs", "pull", at=second)
    for name, data in weights.items():
        assert (second / name).read_bytes() == data, name

    wrong = url.replace(token, "mdl_wrong")
    shutil.rmtree(second / ".git" / "lfs" / "objects")
    git("config", "lfs.url", wrong, at=second)
    assert git("lfs", "fetch", at=second, check=False).returncode != 0
