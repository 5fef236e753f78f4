"""`mdl commit` and `mdl checkout` of MiniLM end to end beside git-lfs and DVC on the same file, in one run.

Every repetition gives every tool, in turn, a fresh repository (made before the clock starts) and does three things: add
the model, add a second version, bring the first back. A plain copy with fsync stands beside them as the floor. Before
every timed step dirty pages are flushed, and the file is in the page cache. The tools differ in what they wait for: the
number of fsync and fdatasync calls of each step is counted once with strace and printed next to the times.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from report import GIT_LFS, median, parser, peer_python, prose, publish, spread, table
from support import models
from support.cli import Mdl, binary, same_bytes, tree_size
from support.tensors import fine_tuned, write_safetensors

STEPS = ("add", "second", "checkout")
NAMES = {"add": "add v1", "second": "add v2", "checkout": "bring v1 back"}
FILE = "model.safetensors"
SYNC = re.compile(rb"\b(fsync|fdatasync|syncfs|sync_file_range)\(")


def run(argv: Sequence[str | Path], cwd: Path, trace: Path | None = None, env: dict[str, str] | None = None) -> None:
    prefix = ["strace", "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync,syncfs,sync_file_range"] if trace else []
    done = subprocess.run(
        [*prefix, *map(str, argv)], cwd=cwd, capture_output=True, env={**os.environ, **(env or {})}, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{argv} failed: {done.stderr.decode(errors='replace')}")


class Tool(ABC):
    """One way of keeping a file: `prepare` is not timed, the three steps are."""

    name = ""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, version: Path) -> None:
        """Puts a version where the tool expects the file (not timed)."""
        shutil.copyfile(version, self.root / FILE)

    @property
    def restored(self) -> Path:
        return self.root / FILE

    def before_checkout(self) -> None:
        """What a checkout of v1 starts from: the file is gone (not timed)."""
        (self.root / FILE).unlink()

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def add(self, trace: Path | None) -> None: ...

    def second(self, trace: Path | None) -> None:
        self.add(trace)

    @abstractmethod
    def checkout(self, trace: Path | None) -> None: ...


class Copy(Tool):
    """cp and fsync: what moving the bytes costs."""

    name = "cp + fsync"

    def prepare(self) -> None:
        (self.root / "store").mkdir()

    def add(self, trace: Path | None) -> None:
        target = self.root / "store" / str(len(list((self.root / "store").iterdir())))
        run(["dd", f"if={FILE}", f"of={target}", "bs=1M", "conv=fsync", "status=none"], self.root, trace)

    def checkout(self, trace: Path | None) -> None:
        run(["dd", "if=store/0", f"of={FILE}", "bs=1M", "conv=fsync", "status=none"], self.root, trace)


class MdlTool(Tool):
    name = "mdl"

    def prepare(self) -> None:
        self.mdl = Mdl.init(self.root)

    def add(self, trace: Path | None) -> None:
        run([binary(), "commit", "-m", "x"], self.root, trace)

    def checkout(self, trace: Path | None) -> None:
        run([binary(), "checkout", "main~1", "--force"], self.root, trace)


class GitLfs(Tool):
    name = "git-lfs"

    def prepare(self) -> None:
        for argv in GIT_LFS:
            run(argv, self.root)

    def add(self, trace: Path | None) -> None:
        run(["sh", "-c", f"git add {FILE} && git commit -q -m x"], self.root, trace)

    def checkout(self, trace: Path | None) -> None:
        run(["git", "checkout", "-q", "HEAD~1", "--", FILE], self.root, trace)


class Dvc(Tool):
    name = "dvc"
    executable = Path()

    def prepare(self) -> None:
        self.env = {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(self.root / "site")}
        for argv in (
            ["init", "--no-scm", "-q"],
            ["config", "core.analytics", "false"],
            ["config", "core.check_update", "false"],
        ):
            run([self.executable, *argv], self.root, env=self.env)
        self.pointers: list[bytes] = []

    def add(self, trace: Path | None) -> None:
        run([self.executable, "add", "-q", FILE], self.root, trace, self.env)
        self.pointers.append((self.root / f"{FILE}.dvc").read_bytes())

    def before_checkout(self) -> None:
        super().before_checkout()
        (self.root / f"{FILE}.dvc").write_bytes(self.pointers[0])

    def checkout(self, trace: Path | None) -> None:
        run([self.executable, "checkout", "-q"], self.root, trace, self.env)


def one_round(kind: type[Tool], versions: Sequence[Path], traces: Path | None) -> dict[str, Any]:
    """One tool, one fresh repository, three timed steps; the restored file is compared."""
    with tempfile.TemporaryDirectory(prefix="mdl-peers-") as folder:
        tool = kind(Path(folder))
        tool.prepare()
        row: dict[str, Any] = {"tool": tool.name}
        for step in STEPS:
            tool.before_checkout() if step == "checkout" else tool.place(versions[STEPS.index(step)])
            os.sync()
            trace = traces / f"{tool.name}-{step}.log".replace(" ", "") if traces else None
            began = time.perf_counter()
            getattr(tool, step)(trace)
            row[step] = time.perf_counter() - began
            if trace:
                row[f"{step}_syncs"] = len(SYNC.findall(trace.read_bytes()))
        if not same_bytes(tool.restored, versions[0]):
            raise SystemExit(f"{tool.name} brought back other bytes than were added")
        row["stored"] = tree_size(tool.root) - tool.restored.stat().st_size
        return row


def tools() -> list[type[Tool]]:
    """The tools that are here; a missing one is named on stderr and left out."""
    found: list[type[Tool]] = [Copy]
    if binary().is_file():
        found.append(MdlTool)
    else:
        print(f"{binary()} is missing: mdl is left out", file=sys.stderr)
    if subprocess.run(["git", "lfs", "version"], capture_output=True, check=False).returncode == 0:
        found.append(GitLfs)
    else:
        print("git-lfs is missing (Debian package git-lfs): left out", file=sys.stderr)
    python = peer_python("dvc", ["dvc==3.67.1"])
    Dvc.executable = python.parent / "dvc"
    found.append(Dvc)
    return found


def version_lines() -> list[str]:
    """The peers' versions, as they print them."""
    asked = {
        "git": ["git", "--version"],
        "git-lfs": ["git", "lfs", "version"],
        "dvc": [str(Dvc.executable), "--version"],
    }
    out = []
    for name, argv in asked.items():
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d+[.\d]*", done.stdout)
        out.append(f"{name} {found[0] if found else 'missing'}")
    return out


def markdown(
    kinds: list[type[Tool]], times: dict[str, dict[str, list[float]]], syncs: dict[str, dict[str, Any]]
) -> str:
    rows = []
    for kind in kinds:
        cells = [spread(times[kind.name][step]) for step in STEPS]
        counts = "/".join(str(syncs[kind.name].get(f"{step}_syncs", "?")) for step in STEPS)
        rows.append([kind.name, *cells, counts, f"{syncs[kind.name]['stored'] / 1e6:.1f}"])
    header = ["tool", *[f"{NAMES[step]}, s" for step in STEPS], "syncs", "stored, MB"]
    return table(header, rows)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    args = options.parse_args()
    kinds = tools()
    times: dict[str, dict[str, list[float]]] = {k.name: {s: [] for s in STEPS} for k in kinds}
    with tempfile.TemporaryDirectory(prefix="mdl-peers-") as scratch:
        versions = [Path(scratch) / "v1", Path(scratch) / "v2"]
        shutil.copyfile(models.MINILM, versions[0])
        write_safetensors(versions[1], fine_tuned(models.minilm_tensors(), (), 1e-3, seed=1), {"format": "pt"})
        traces = Path(scratch) if shutil.which("strace") else None
        syncs = {kind.name: one_round(kind, versions, traces) for kind in kinds}
        for i in range(args.rounds):
            for kind in kinds[i % len(kinds) :] + kinds[: i % len(kinds)]:
                row = one_round(kind, versions, None)
                for step in STEPS:
                    times[kind.name][step].append(row[step])
                print(f"round {i}: {row}", file=sys.stderr)
    text = markdown(kinds, times, syncs) + prose(
        f"MiniLM, {models.MINILM.stat().st_size:,} bytes of f32 safetensors; v2 is every float plus noise of 0.1 % of",
        f"its deviation. Median of {args.rounds} interleaved rounds (range). `syncs`: fsync, fdatasync and the like in",
        "each step, counted in a separate traced round: a tool with 0 returns before anything is on the disk.",
        f"Process start is included, as a person would wait for it. {'; '.join(version_lines())}; DVC without git.",
    )
    data = {
        "times": times,
        "untimed": syncs,
        "medians": {k: {s: median(v) for s, v in t.items()} for k, t in times.items()},
    }
    publish("peers", "mdl, git-lfs and DVC on one file", text, data, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
