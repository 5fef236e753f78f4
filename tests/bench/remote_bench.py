"""`mdl push`, `clone` and `pull` of a long history beside DVC and git-lfs with the same versions, in one run.

Every tool gets the same versions of one model and a remote in another directory (mdl also one behind `mdl serve` on
loopback). Timed: sending the whole history, bringing all of it into a fresh place, sending one more version, bringing
that one over. Bytes are what the remote grew by; for mdl also what its commands say was carried. Before every timed
step dirty pages are flushed. The last version is compared byte for byte in the fresh place.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import GIT_LFS, parser, peer_python, prose, publish, table
from support.cli import Mdl, binary, same_bytes, tree_size
from support.server import Server
from support.tensors import Tensor, write_safetensors

FILE = "model.safetensors"
STEPS = ("push", "clone", "push one", "pull one")


def run(argv: Sequence[str | Path], cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, capture_output=True, env={**os.environ, **(env or {})}, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{argv} failed: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode()


class Tool(ABC):
    """One way of moving a history; `place` and `record` are not timed."""

    name = ""

    def __init__(self, root: Path) -> None:
        self.root, self.here, self.there, self.fresh = root, root / "here", root / "there", root / "fresh"
        self.carried: dict[str, int] = {}
        self.here.mkdir(parents=True)

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def record(self, lossy: bool) -> None:
        """Makes what is at FILE a version."""

    @abstractmethod
    def push(self) -> None: ...

    @abstractmethod
    def clone(self) -> None: ...

    @abstractmethod
    def pull(self) -> None: ...

    def close(self) -> None:  # noqa: B027 (most have nothing to end)
        """Ends what was started."""


class MdlDirectory(Tool):
    name = "mdl, directory"

    def prepare(self) -> None:
        Mdl.init(self.there / "team" / "model", "--bare")
        self.mdl = Mdl.init(self.here)
        self.mdl.run("remote", "add", "origin", self.url())

    def url(self) -> str:
        return str(self.there / "team" / "model")

    def record(self, lossy: bool) -> None:
        options = ["--policy", "lossy", "--eval", "echo 1"] if lossy else []
        self.mdl.run("commit", "-m", "x", *options)

    def push(self) -> None:
        self.note("push", json.loads(run(self.mdl.argv("--json", "push"), self.here))["sent_bytes"])

    def clone(self) -> None:
        argv = [str(binary()), "--json", "clone", self.url(), str(self.fresh)]
        self.note("clone", json.loads(run(argv, self.root))["received"]["carried_bytes"])

    def pull(self) -> None:
        said = json.loads(run(Mdl(self.fresh).argv("--json", "pull"), self.fresh))
        self.note("pull one", said["received"]["carried_bytes"])

    def note(self, step: str, carried: int) -> None:
        self.carried["push one" if step in self.carried else step] = carried


class MdlServe(MdlDirectory):
    name = "mdl, mdl serve"

    def prepare(self) -> None:
        self.there.mkdir()
        self.server = Server(self.there).start()
        super().prepare()

    def url(self) -> str:
        return f"{self.server.url}/team/model"

    def close(self) -> None:
        self.server.stop()


class GitLfs(Tool):
    name = "git-lfs"

    def prepare(self) -> None:
        run(["git", "init", "-q", "--bare", "-b", "main", self.there], self.root)
        for argv in (
            *GIT_LFS,
            ["git", "remote", "add", "origin", f"file://{self.there}"],
        ):
            run(argv, self.here)

    def record(self, lossy: bool) -> None:
        run(["git", "add", FILE], self.here)
        run(["git", "commit", "-q", "-m", "x"], self.here)

    def push(self) -> None:
        run(["git", "push", "-q", "origin", "main"], self.here)

    def clone(self) -> None:
        run(["git", "clone", "-q", f"file://{self.there}", self.fresh], self.root, {"GIT_LFS_SKIP_SMUDGE": "1"})
        run(["git", "lfs", "install", "--local"], self.fresh)
        run(["git", "lfs", "fetch", "--all"], self.fresh)
        run(["git", "lfs", "checkout"], self.fresh)

    def pull(self) -> None:
        run(["git", "pull", "-q"], self.fresh)
        run(["git", "lfs", "pull"], self.fresh)


class Dvc(Tool):
    name = "dvc"
    executable = Path()

    def prepare(self) -> None:
        self.env = {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(self.root / "site")}
        run(["git", "init", "-q", "--bare", "-b", "main", self.root / "git"], self.root)
        for argv in (
            ["git", "init", "-q", "-b", "main"],
            ["git", "config", "user.email", "bench@example.org"],
            ["git", "config", "user.name", "bench"],
            ["git", "remote", "add", "origin", self.root / "git"],
            [self.executable, "init", "-q"],
            [self.executable, "config", "core.analytics", "false"],
            [self.executable, "config", "core.check_update", "false"],
            [self.executable, "remote", "add", "-q", "-d", "there", self.there],
            ["git", "add", "-A"],
            ["git", "commit", "-q", "-m", "start"],
        ):
            run(argv, self.here, self.env)
        self.there.mkdir()

    def record(self, lossy: bool) -> None:
        run([self.executable, "add", "-q", FILE], self.here, self.env)
        run(["git", "add", "-A"], self.here)
        run(["git", "commit", "-q", "-m", "x"], self.here)

    def push(self) -> None:
        run([self.executable, "push", "-q", "--all-commits"], self.here, self.env)
        run(["git", "push", "-q", "origin", "main"], self.here)

    def clone(self) -> None:
        run(["git", "clone", "-q", self.root / "git", self.fresh], self.root)
        run([self.executable, "fetch", "-q", "--all-commits"], self.fresh, self.env)
        run([self.executable, "checkout", "-q"], self.fresh, self.env)

    def pull(self) -> None:
        run(["git", "pull", "-q"], self.fresh)
        run([self.executable, "pull", "-q"], self.fresh, self.env)


def version(path: Path, index: int, weights: np.ndarray, steady: np.ndarray) -> None:
    """The model after `index` steps: most weights move a little, one tensor stays."""
    rng = np.random.default_rng(1000 + index)
    weights += rng.standard_normal(weights.shape, dtype=np.float32) * np.float32(2e-5)
    layers = np.split(weights, 16)
    tensors = [Tensor.of(f"layers.{i}.weight", part.reshape(-1, 512)) for i, part in enumerate(layers)]
    write_safetensors(path, [Tensor.of("embed.weight", steady.reshape(-1, 512)), *tensors], {"format": "pt"})


def timed(step: Callable[[], None]) -> float:
    os.sync()
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def measure(kind: type[Tool], scratch: Path, commits: int, elements: int) -> dict[str, Any]:
    """One tool: its history is made, then the four steps are timed."""
    root = scratch / kind.name.replace(" ", "").replace(",", "-")
    tool = kind(root)
    tool.prepare()
    try:
        weights = np.random.default_rng(1).standard_normal(elements, dtype=np.float32) * np.float32(0.02)
        steady = np.random.default_rng(2).standard_normal(elements // 8, dtype=np.float32) * np.float32(0.02)
        for index in range(commits):
            version(tool.here / FILE, index, weights, steady)
            tool.record(lossy=index >= commits * 3 // 5)
        row: dict[str, Any] = {"tool": kind.name, "stored": stored(tool)}
        row["push"] = timed(tool.push)
        row["there"] = tree_size(tool.there)
        row["clone"] = timed(tool.clone)
        row["fresh"] = tree_size(tool.fresh) - (tool.fresh / FILE).stat().st_size
        version(tool.here / FILE, commits, weights, steady)
        tool.record(lossy=False)
        row["push one"] = timed(tool.push)
        row["there one"] = tree_size(tool.there) - row["there"]
        row["pull one"] = timed(tool.pull)
        row["carried"] = tool.carried
        row["stored one"] = stored(tool) - row["stored"]
        if not same_bytes(tool.here / FILE, tool.fresh / FILE):
            raise SystemExit(f"{kind.name} brought over other bytes than were sent")
        return row
    finally:
        tool.close()
        shutil.rmtree(root)


def stored(tool: Tool) -> int:
    packs = tool.here / ".mdl" / "packs"
    return tree_size(packs) if packs.is_dir() else tree_size(tool.here) - (tool.here / FILE).stat().st_size


def mb(value: float) -> str:
    return f"{value / 1e6:.1f}"


def markdown(rows: list[dict[str, Any]]) -> str:
    times = table(
        ["tool", *[f"{step}, s" for step in STEPS], "remote, MB", "remote grew, MB"],
        [[r["tool"], *[f"{r[s]:.2f}" for s in STEPS], mb(r["there"]), mb(r["there one"])] for r in rows],
    )
    ours = [r for r in rows if r["carried"]]
    wire = table(
        ["mdl", "packs, MB", "pushed, ratio", "cloned, ratio", "new packs, MB", "pushed, ratio", "pulled, ratio"],
        [
            [
                r["tool"],
                mb(r["stored"]),
                f"{r['carried']['push'] / r['stored']:.3f}",
                f"{r['carried']['clone'] / r['stored']:.3f}",
                mb(r["stored one"]),
                f"{r['carried']['push one'] / r['stored one']:.3f}",
                f"{r['carried']['pull one'] / r['stored one']:.3f}",
            ]
            for r in ours
        ],
    )
    said = (
        "\nBytes that mdl carried (parts of packs; not the list of objects, about 110 bytes each), over those of the\n"
    )
    return times + said + "packs that the other side lacked:\n\n" + wire


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--commits", type=int, default=50)
    options.add_argument("--elements", type=int, default=4 << 20)
    args = options.parse_args()
    python = peer_python("dvc", ["dvc==3.67.1"])
    Dvc.executable = python.parent / "dvc"
    kinds: list[type[Tool]] = [MdlDirectory, MdlServe, GitLfs, Dvc]
    with tempfile.TemporaryDirectory(prefix="mdl-remotes-") as scratch:
        rows = []
        for kind in kinds:
            rows.append(measure(kind, Path(scratch), args.commits, args.elements))
            print(rows[-1], file=sys.stderr)
    size = 4 * (args.elements + args.elements // 8)
    text = markdown(rows) + prose(
        f"{args.commits} versions of a model of {size:,} bytes (f32; every weight but those of one tensor moves a",
        "little each step); in mdl's histories the first three fifths are lossless and the rest quantised under the",
        "policy `lossy`, the one version more is lossless. `clone` brings all versions into a fresh place (git-lfs:",
        "fetch --all; DVC: fetch --all-commits) and writes the newest. mdl decodes and hashes all that arrives",
        "before it counts; the others compare hashes of whole files. One run.",
    )
    publish("remotes", "Moving histories: mdl, git-lfs and DVC", text, {"rows": rows}, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
