"""Repositories through fsspec: names, reading of any revision, writing in one commit."""

import gc
import importlib
import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fsspec")

import fsspec
import mdl
import safetensors
import safetensors.numpy
from mdl.integrations._url import Place, locate
from mdl.integrations.fsspec import MdlFileSystem

CONFIG = b'{"layers": 3}'


@pytest.fixture
def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"a.weight": rng.standard_normal((300, 70), dtype=np.float32), "b": np.arange(5)}


@pytest.fixture
def repo(tmp_path: Path, weights: dict[str, np.ndarray]) -> mdl.Repo:
    """Two versions: `main~1` with config v1, `main` with another config and one file less; `v1` tags the first."""
    repo = mdl.Repo.init(tmp_path / "gpt")
    files = {"model.safetensors": weights, "config.json": b"{}", "tok/a.txt": b"one", "tok/deep/b.txt": b"two"}
    repo.commit_staged([], files=files, step=1)
    repo.tag("v1")
    repo.commit_staged([], files={**files, "config.json": CONFIG, "tok/a.txt": b"ONE"}, step=2)
    return repo


@pytest.fixture
def fs(repo: mdl.Repo) -> MdlFileSystem:
    return MdlFileSystem(skip_instance_cache=True)


@pytest.fixture
def root(repo: mdl.Repo) -> str:
    return str(repo.work)


# Names.


@pytest.mark.parametrize(
    ("name", "rev", "inner"),
    [
        ("", None, ""),
        ("@main", "main", ""),
        ("/", None, ""),
        ("/model.safetensors", None, "model.safetensors"),
        ("/model.safetensors@main~2", "main~2", "model.safetensors"),
        ("@main~2/model.safetensors", "main~2", "model.safetensors"),
        ("@main@best(loss)/a/b", "main@best(loss)", "a/b"),
        ("/a/b@main@step=100", "main@step=100", "a/b"),
        ("/a/b@team/exp", "team/exp", "a/b"),
        ("@team%2Fexp/a/b", "team/exp", "a/b"),
        ("@HEAD/odd@name", "HEAD", "odd@name"),
        ("@100%25/a", "100%", "a"),
    ],
)
def test_names_are_taken_apart(root: str, name: str, rev: str | None, inner: str) -> None:
    assert locate(f"mdl://{root}{name}") == Place(root, rev, inner)
    # The name in its first form means the same.
    assert locate(str(locate(root + name))) == Place(root, rev, inner)


def test_the_deepest_repository_counts_and_its_name_may_have_an_at(tmp_path: Path) -> None:
    mdl.Repo.init(tmp_path)
    mdl.Repo.init(tmp_path / "a@b", bare=True)
    assert locate(tmp_path / "a@b" / "x") == Place(f"{tmp_path}/a@b", None, "x")
    assert locate(f"{tmp_path}/a@b@v1/x") == Place(f"{tmp_path}/a@b", "v1", "x")
    assert locate(f"{tmp_path}/a@c") == Place(str(tmp_path), "c", "a")
    with pytest.raises(mdl.NotFoundError, match="no repository"):
        locate("/nowhere/at/all")


def test_relative_names(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(root).parent)
    with fsspec.open("mdl://gpt/config.json@v1") as file:
        assert file.read() == b"{}"


# Reading.


def test_any_revision_through_open(root: str, weights: dict[str, np.ndarray]) -> None:
    for name, want in [
        ("/config.json", CONFIG),
        ("@main/config.json", CONFIG),
        ("/config.json@main~1", b"{}"),
        ("@v1/config.json", b"{}"),
        ("@main@step=1/config.json", b"{}"),
    ]:
        with fsspec.open(f"mdl://{root}{name}") as file:
            assert file.read() == want
    with fsspec.open(f"mdl://{root}/config.json", rev="v1") as file:
        assert file.read() == b"{}"
    with fsspec.open(f"mdl://{root}/tok/a.txt", "rt") as file:
        assert file.read() == "ONE"
    with fsspec.open(f"mdl://{root}/model.safetensors@main~1") as file:
        assert np.array_equal(safetensors.numpy.load(file.read())["a.weight"], weights["a.weight"])


def test_listings(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    base = f"{root}@v1"
    assert fs.ls(base, detail=False) == [f"{base}/{n}" for n in ("config.json", "model.safetensors", "tok")]
    assert fs.ls(f"{root}/tok@v1", detail=False) == [f"{base}/tok/a.txt", f"{base}/tok/deep"]
    assert fs.ls(f"{root}/config.json", detail=False) == [f"{root}/config.json"]
    info = fs.info(f"{base}/model.safetensors")
    assert (info["type"], info["kind"], info["version"]) == ("file", "tensors", repo.resolve("v1"))
    assert info["size"] == repo.files("v1")["model.safetensors"].size
    assert fs.info(f"{base}/tok")["type"] == fs.info(base)["type"] == "directory"
    assert fs.find(root) == [f"{root}/{p}" for p in sorted(repo.files())]
    assert fs.glob(f"{root}/**/*.txt@v1") == [f"{base}/tok/a.txt", f"{base}/tok/deep/b.txt"]
    assert fs.glob(f"mdl://{root}/*.json") == [f"{root}/config.json"]
    assert [n for _, _, files in fs.walk(base) for n in files] == ["config.json", "model.safetensors", "a.txt", "b.txt"]
    assert fs.exists(f"{root}/tok/deep")
    assert fs.isdir(f"{root}/tok/deep")
    assert fs.isfile(f"{root}/tok/deep/b.txt")
    assert not fs.exists(f"{root}/tok/dee")
    assert fs.du(f"{root}/tok@v1") == 6
    assert fs.ukey(f"{root}/config.json") != fs.ukey(f"{base}/config.json")
    assert fs.modified(base) == repo.show("v1").time


def test_ranges(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    whole = repo.read("main", "model.safetensors")
    path = f"{root}/model.safetensors"
    for start, end in [(None, None), (0, 8), (5, 5), (1000, 70_000), (-9, None), (-9, -3), (None, -1), (80_000, 10**9)]:
        assert fs.cat_file(path, start, end) == whole[start:end]
    assert fs.cat_ranges([path, path], [0, 100], [4, 120]) == [whole[:4], whole[100:120]]
    assert fs.cat(f"{root}/tok/**/*.txt@v1") == {f"{root}@v1/tok/a.txt": b"one", f"{root}@v1/tok/deep/b.txt": b"two"}
    with fs.open(path, block_size=1000) as file:
        rng = np.random.default_rng(1)
        for at in rng.integers(0, len(whole), 30):
            file.seek(at)
            assert file.read(700) == whole[at : at + 700]
        file.seek(-5, io.SEEK_END)
        assert file.read() == whole[-5:]
    assert fs.head(path, 10) == whole[:10]
    assert fs.tail(path, 10) == whole[-10:]


def test_an_open_file_stays_the_one_it_was(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    with fs.open(f"{root}/config.json@main", cache_type="none") as file:
        repo.commit_staged([], files={"other": b"x"})
        assert file.read() == CONFIG
    assert not fs.exists(f"{root}/config.json@main")


def test_readers_of_files_take_it(root: str, weights: dict[str, np.ndarray], tmp_path: Path) -> None:
    cached = fsspec.open_local(f"simplecache::mdl://{root}/model.safetensors@v1", cache_storage=str(tmp_path / "c"))
    with safetensors.safe_open(cached, "numpy") as file:
        assert np.array_equal(file.get_slice("a.weight")[3:7], weights["a.weight"][3:7])
    torch = pytest.importorskip("torch")
    saved = io.BytesIO()
    torch.save({"x": torch.arange(4)}, saved)
    fsspec.filesystem("mdl").pipe_file(f"{root}/x.pt", saved.getvalue())
    with fsspec.open(f"mdl://{root}/x.pt") as file:
        assert torch.equal(torch.load(file)["x"], torch.arange(4))


def test_what_is_not_there(fs: MdlFileSystem, root: str) -> None:
    for name in ("/none", "/none@v1", "@nowhere/config.json", "/config.json/below", "/tok/deep/none"):
        for call in (fs.info, fs.ls, fs.cat_file, fs.open, fs.rm_file):
            with pytest.raises(FileNotFoundError):
                call(root + name)
    with pytest.raises(FileNotFoundError, match="no repository"):
        fs.cat_file("/nowhere/at/all")
    for call in (fs.cat_file, fs.open):
        with pytest.raises(IsADirectoryError):
            call(f"{root}/tok")


def test_an_empty_repository(tmp_path: Path) -> None:
    fs, repo = MdlFileSystem(skip_instance_cache=True), mdl.Repo.init(tmp_path)
    with pytest.raises(FileNotFoundError):
        fs.ls(str(tmp_path))
    fs.pipe_file(f"{tmp_path}/first", b"1")
    assert repo.read("main", "first") == b"1"
    assert fs.ls(str(tmp_path), detail=False) == [f"{tmp_path}/first"]


def test_it_can_be_pickled(root: str) -> None:
    fs = pickle.loads(pickle.dumps(MdlFileSystem(rev="v1")))
    assert fs.cat_file(f"{root}/config.json") == b"{}"
    with fsspec.open(f"mdl://{root}/config.json@v1") as file:
        assert pickle.loads(pickle.dumps(file)).read() == b"{}"


# Writing.


def test_each_write_is_a_commit_and_the_rest_stays(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    before = {p: repo.read("main", p) for p in repo.files()}
    with fs.open(f"{root}@main/new/file.bin", "wb", block_size=10) as file:
        file.write(b"x" * 25)
        file.write(b"y" * 3)
    fs.pipe_file(f"{root}/config.json", b"[]")
    fs.touch(f"{root}/empty")
    assert len(repo.log("main")) == 5
    assert {p: repo.read("main", p) for p in repo.files()} == {
        **before,
        "new/file.bin": b"x" * 25 + b"yyy",
        "config.json": b"[]",
        "empty": b"",
    }
    assert [c.message for c in repo.log("main", limit=3)] == ["write empty", "write config.json", "write new/file.bin"]
    assert fs.last_commit == repo.show("main")
    assert not list((repo.path / "candidates").iterdir())


def test_modes(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    with fs.open(f"{root}/tok/a.txt", "ab") as file:
        file.write(b" more")
    assert repo.read("HEAD", "tok/a.txt") == b"ONE more"
    with pytest.raises(FileExistsError):
        fs.open(f"{root}/tok/a.txt", "xb")
    with pytest.raises(FileExistsError):
        fs.pipe_file(f"{root}/tok/a.txt", b"", mode="create")
    with fs.open(f"{root}/text", "w") as file:
        file.write("äöü")
    assert repo.read("HEAD", "text") == "äöü".encode()


def test_one_commit_for_a_transaction(fs: MdlFileSystem, root: str, repo: mdl.Repo, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"local")
    with fs.transaction:
        fs.pipe_file(f"{root}/one", b"1")
        fs.put_file(str(local), f"{root}/sub/two")
        fs.rm_file(f"{root}/config.json")
        fs.mv(f"{root}/tok/a.txt", f"{root}/tok/c.txt")
        fs.mv(f"{root}/one", f"{root}/eins")
        fs.cp_file(f"{root}/eins", f"{root}/uno")
        fs.pipe_file(f"{root}/gone", b"")
        fs.rm_file(f"{root}/gone")
        fs.makedirs(f"{root}/nothing/here")
        forgotten = fs.open(f"{root}/forgotten", "wb")
        forgotten.write(b"f")
        assert not fs.exists(f"{root}/eins")
        assert len(repo.log("main")) == 2
    assert len(repo.log("main")) == 3
    files = {p: repo.read("main", p) for p in repo.files() if p != "model.safetensors"}
    assert files == {
        "eins": b"1",
        "uno": b"1",
        "sub/two": b"local",
        "tok/c.txt": b"ONE",
        "tok/deep/b.txt": b"two",
        "forgotten": b"f",
    }
    assert not list((repo.path / "candidates").iterdir())


def test_an_exception_discards_a_transaction(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    def fails() -> None:
        with fs.transaction:
            fs.pipe_file(f"{root}/one", b"1")
            fs.open(f"{root}/two", "wb").write(b"2")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert len(repo.log("main")) == 2
    assert not list((repo.path / "candidates").iterdir())
    fs.pipe_file(f"{root}/three", b"3")
    assert set(repo.files()) == {"three", "config.json", "model.safetensors", "tok/a.txt", "tok/deep/b.txt"}


def test_half_a_file_is_not_committed(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    def fails() -> None:
        with fs.open(f"{root}/half", "wb", block_size=2) as file:
            file.write(b"half")
            raise ZeroDivisionError

    def forgets() -> None:
        fs.open(f"{root}/half", "wb").write(b"half")
        gc.collect()

    with pytest.raises(ZeroDivisionError):
        fails()
    with pytest.warns(ResourceWarning, match="not committed"):
        forgets()
    assert len(repo.log("main")) == 2
    assert not list((repo.path / "candidates").iterdir())


def test_a_verb_on_many_files_is_one_commit(fs: MdlFileSystem, root: str, repo: mdl.Repo, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "in").mkdir(parents=True)
    (source / "x").write_bytes(b"x")
    (source / "in" / "y").write_bytes(b"y")
    fs.put(str(source), f"{root}/put", recursive=True)
    assert {p for p in repo.files() if p.startswith("put/")} == {"put/x", "put/in/y"}
    fs.mv(f"{root}/tok", f"{root}/tokens", recursive=True)
    assert {p for p in repo.files() if p.startswith("tok")} == {"tokens/a.txt", "tokens/deep/b.txt"}
    fs.pipe({f"{root}/p": b"p", f"{root}/q": b"q"})
    fs.rm([f"{root}/p", f"{root}/put"], recursive=True)
    assert set(repo.files()) == {"config.json", "model.safetensors", "tokens/a.txt", "tokens/deep/b.txt", "q"}
    assert len(repo.log("main")) == 6
    fs.get(f"{root}/tokens@main", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got" / "deep" / "b.txt").read_bytes() == b"two"


def test_branches_are_written_to_and_versions_are_not(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    fs.pipe_file(f"{root}@exp/only", b"here")
    with fs.transaction:
        fs.pipe_file(f"{root}@exp/second", b"2")
        fs.cp_file(f"{root}@v1/config.json", f"{root}@main/old.json")
    assert repo.files("exp").keys() - repo.files("main").keys() == {"only", "second"}
    assert [len(repo.log(b)) for b in ("exp", "main")] == [4, 3]
    assert repo.read("main", "old.json") == b"{}"
    MdlFileSystem(rev="exp", skip_instance_cache=True).rm_file(f"{root}/only")
    assert "only" not in repo.files("exp")
    for rev in ("v1", "main~1", repo.resolve("main")):
        with pytest.raises(PermissionError):
            fs.pipe_file(f"{root}@{rev}/x", b"")
    with pytest.raises(mdl.MdlError):
        fs.pipe_file(f"{root}@no..branch/x", b"")
    assert not list((repo.path / "candidates").iterdir())


def test_what_others_commit_meanwhile_stays(
    fs: MdlFileSystem, root: str, repo: mdl.Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = mdl.Repo.staged

    def slow(self: mdl.Repo, *args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(mdl.Repo, "staged", staged)
        MdlFileSystem(skip_instance_cache=True).pipe_file(f"{root}/theirs", b"t")
        return staged(self, *args, **kwargs)

    monkeypatch.setattr(mdl.Repo, "staged", slow)
    fs.pipe_file(f"{root}/ours", b"o")
    assert {"ours", "theirs", "config.json"} < repo.files("main").keys()


def test_something_is_said_of_a_version(fs: MdlFileSystem, root: str, repo: mdl.Repo) -> None:
    with fs.committing("better", step=7, metrics={"loss": 0.25}):
        fs.pipe_file(f"{root}/one", b"1")
        fs.pipe_file(f"{root}/two", b"2")
    made = repo.show("main")
    assert (made.message, made.step, made.metrics) == ("better", 7, {"loss": 0.25})
    assert fs.last_commit is not None
    assert fs.last_commit.id == made.id
    fs.pipe_file(f"{root}/three", b"3")
    assert repo.show("main").step is None


def test_tensors_stay_tensors(fs: MdlFileSystem, root: str, repo: mdl.Repo, weights: dict[str, np.ndarray]) -> None:
    weights["a.weight"][0] += 1e-3
    fs.pipe_file(f"{root}/model.safetensors", safetensors.numpy.save(weights))
    assert np.array_equal(repo.tensor("main", "a.weight").numpy(), weights["a.weight"])
    # A delta to the version before, and nothing for the files that stayed.
    assert repo.show("main").stored_bytes < weights["a.weight"].nbytes / 20


def test_fsspec_finds_it() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    named = re.search(r'^mdl = "(.*)"$', text.partition("fsspec.specs")[2], re.MULTILINE)
    assert named is not None
    module, _, name = named[1].replace(":", ".").rpartition(".")
    assert getattr(importlib.import_module(module), name) is MdlFileSystem
    assert isinstance(fsspec.filesystem("mdl"), MdlFileSystem)
