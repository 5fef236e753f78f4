"""Runs a command on a recorded disk, cuts its power, and lists everything that is wrong after a cut."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from . import disks, power
from .power_check import Expected, Told, Versions, contents, findings, works_on
from .power_site import Site, build
from .power_verbs import Verb

MIB = 64
PAUSE = 0.03
"""Seconds after the last acknowledgement in which another program still syncs."""
SECONDS = 120
"""After which the checks of a cut count as hanging."""


@dataclass
class Stage:
    """The image that every recording begins with, and the bytes of all versions in it."""

    folder: Path
    image: Path
    site: Site
    versions: Versions


@contextmanager
def stage() -> Iterator[Stage]:
    with power.scratch() as folder:
        image = power.made(folder / "base.img", MIB)
        with disks.mounted(folder / "base", "-o", "loop", image) as root:
            site = Site(root, folder / "elsewhere")
            build(site)
            folders = [site.version(n) for n in range(1, 16)]
            versions = Versions(folders, folder / "restored")
            part = {"model.safetensors": (site.version(13) / "model.safetensors").read_bytes()}
            for name in ("origin", "repo"):
                versions.learn(site.origin if name == "origin" else site.repo, [part])
        yield Stage(folder, image, site, versions)


@dataclass(frozen=True)
class Moment:
    """An acknowledgement: where the log stood when it came, what was told then, and after which step."""

    at: int
    told: tuple[Told, ...]
    step: int
    until: int = 0
    """Where the log stood when the next step began; 0 in the middle of a step."""


@dataclass
class Recording:
    verb: Verb
    disk: power.Disk
    moments: list[Moment]
    loose: frozenset[str]
    allowed: list[dict[str, bytes]]


def told(verb: Verb, site: Site) -> tuple[Told, ...]:
    """Of each repository the verb is about; files beside count for the first."""
    beside = [site.root / name for name in verb.beside]
    return tuple(Told.by(site.at(name), beside if not i else ()) for i, name in enumerate(verb.repos))


@contextmanager
def recorded(on: Stage, verb: Verb, options: str, seed: int, unrest: float | None) -> Iterator[Recording]:
    """Runs the steps one after the other; everything on the disk beforehand had been synced."""
    folder = on.folder / "recording"
    folder.mkdir()
    try:
        with power.recorded(folder, on.image, options) as disk:
            yield run(on, verb, disk, seed, unrest)
    finally:
        shutil.rmtree(folder)


def run(on: Stage, verb: Verb, disk: power.Disk, seed: int, unrest: float | None) -> Recording:
    site = replace(on.site, root=disk.root)
    allowed: list[dict[str, bytes]] = [{"model.safetensors": (site.version(13) / "model.safetensors").read_bytes()}]
    first = told(verb, site)
    began = disk.sync()
    moments = [Moment(began, first, 0, began)]

    def acknowledged(commit: str) -> None:
        """In the middle of a step: what was told last, but for the branch."""
        at, last = disk.position(), moments[-1].told[0]
        main = {"refs/heads/main": f"{commit}\n".encode()}
        moments.append(Moment(at, (replace(last, facts=last.facts | main),), moments[-1].step))

    with disk.unrest(unrest, seed):
        for n, step in enumerate(verb.steps, 1):
            step(replace(site, acknowledged=acknowledged))
            at, now = disk.position(), told(verb, site)
            allowed += [{k: v for k, v in t.files.items() if "//" not in k} for t in now]
            for name in verb.repos:
                mdl = site.at(name)
                # Reading a version would fetch it.
                if name != "some" and verb.name != "clone --only":
                    on.versions.learn(mdl, allowed)
            moments.append(Moment(at, now, n, disk.position()))
        time.sleep(PAUSE)
    loose = frozenset(contents(site.version(11))) if verb.loose else frozenset()
    return Recording(verb, disk, moments, loose, allowed)


def cuts(recording: Recording, count: int, chance: random.Random) -> list[power.Cut]:
    """Half of them in the middle of the steps, half at an acknowledgement or soon after it."""
    moments, disk = recording.moments, recording.disk
    out = power.chosen(disk, (moments[0].at, moments[-1].at), chance, count // 2)
    for cut in power.chosen(disk, (moments[-1].at, disk.position()), chance, count - count // 2):
        at = chance.choice([*(m.at for m in moments[1:]), moments[-1].at, cut.at])
        out.append(replace(cut, at=at))
    return out


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A command that does not end counts as one that fails; it is killed."""

    def late(*_: object) -> None:
        raise AssertionError(f"not over after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wrong_after(on: Stage, recording: Recording, cut: power.Cut) -> list[str]:
    """Everything that is wrong after one cut: with the state, with the retry, with the next commands."""
    moments = recording.moments
    last = max(i for i, m in enumerate(moments) if m.at <= cut.at)
    # Until the step is over, what was told in its middle may have come late.
    under_way = moments[last].step + (cut.at > moments[last].until)
    later = [m for m in moments[last:] if m.step <= under_way]
    image = recording.disk.after(cut, on.folder / "cut.img")
    with disks.mounted(on.folder / "cut", "-o", f"loop,{recording.disk.options}", image) as root:
        try:
            with within(SECONDS):
                out = wrong_at(on, recording, replace(on.site, root=root), later)
        except AssertionError as error:
            out = [str(error)]
    return out + power.unsound(image)


def wrong_at(on: Stage, recording: Recording, site: Site, later: list[Moment]) -> list[str]:
    """The state, then the command that was cut off, then others; each only where what is before it is in order."""
    verb, out = recording.verb, []
    beside = [site.root / name for name in verb.beside]
    for i, name in enumerate(verb.repos):
        expected = Expected([m.told[i] for m in later], recording.loose, verb.gone)
        out += findings(site.at(name), on.versions, expected, beside if not i else ())
    out = out or verb.also(site, on.versions) or again(recording, site, later)
    for name in verb.repos if not out else ():
        out += works_on(site.at(name), on.versions, site.version(15)) if Told.by(site.at(name)).there else []
    return out


def again(recording: Recording, site: Site, later: list[Moment]) -> list[str]:
    """The step that was cut off, made again unless all of it is there."""
    step = later[-1].step
    if step == later[0].step or told(recording.verb, site) == later[-1].told:
        return []
    if recording.verb.loose:
        return []  # What the other program had written is lost, and the command may refuse what is left of it.
    try:
        recording.verb.steps[step - 1](site)
        for i, name in enumerate(recording.verb.repos):
            new = Told.by(site.at(name))
            missing = later[-1].told[i].facts.keys() - new.facts.keys()
            if missing:
                return [f"made again, it leaves {sorted(missing)} out"]
            site.at(name).fsck()
    except AssertionError as error:
        return [f"made again: {error}"]
    return []


def kept(on: Stage, recording: Recording, to: Path) -> Path:
    """The log, the first and the last image of a failure."""
    to.mkdir(parents=True, exist_ok=True)
    for path in (recording.disk.log, on.image, on.folder / "cut.img"):
        if path.exists():
            shutil.copyfile(path, to / path.name)
    return to
