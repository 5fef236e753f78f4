"""Power cuts in the middle of every verb that writes and right after its acknowledgement (docs/power-cuts.md).

`make test` cuts a few verbs, MDL_TEST_SCALE=full some more, `make power-cuts CUTS=500` (MDL_POWER_CUTS) spreads that
many over all verbs.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from support import faults, power, power_stage, scale
from support.cli import binary
from support.power_stage import Stage
from support.power_verbs import VERBS, Verb

CUTS = int(os.environ.get("MDL_POWER_CUTS", "0"))
SEED = int(os.environ.get("MDL_POWER_SEED", "1"))
SAMPLE = {"commit DIR", "switch", "gc", "clone", "pull", "push", "commit over HTTP"}
FEW, EACH = 3, 2
"""Verbs of the sample that a quick look cuts, and cuts of each verb."""
RESTLESS = 0.004
"""Seconds between two syncs of another program, on average."""


# All on one worker: its disks are one stage, and a sync of the whole machine beside them would hide what is not synced.
pytestmark = pytest.mark.xdist_group("disks")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with power_stage.stage() as made:
        yield made


def rounds() -> list[tuple[Verb, str, int]]:
    """Which verbs are cut on which kind of disk, and how often."""
    if not CUTS:
        sample = scale.sample([verb for verb in VERBS if verb.name in SAMPLE], FEW)
        return [(verb, power.HOSTILE, EACH) for verb in sample]
    pairs = [(verb, options) for verb in VERBS for options in power.OPTIONS]
    share, more = divmod(CUTS, len(pairs))
    return [(verb, options, share + (n < more)) for n, (verb, options) in enumerate(pairs) if share + (n < more)]


def named(value: object) -> str | None:
    if isinstance(value, Verb):
        return value.name.replace(" ", "-")
    return {power.ORDERED: "ordered", power.HOSTILE: "hostile"}.get(str(value))


@pytest.mark.parametrize(("verb", "options", "count"), rounds(), ids=named)
def test_a_power_cut_damages_nothing(stage: Stage, tmp_path: Path, verb: Verb, options: str, count: int) -> None:
    chance = random.Random(f"{SEED} {verb.name} {options}")
    began, wrong = time.monotonic(), []
    unrest = chance.choice((None, RESTLESS))
    with power_stage.recorded(stage, verb, options, chance.randrange(1 << 30), unrest) as recording:
        chosen = power_stage.cuts(recording, count, chance)
        for cut in chosen:
            found = power_stage.wrong_after(stage, recording, cut)
            if found and not wrong:
                power_stage.kept(stage, recording, tmp_path / "kept")
            wrong += [f"{cut}: {line}" for line in found]
        report(verb, options, unrest, recording, chosen, len(wrong), time.monotonic() - began)
    assert not wrong, f"{verb.name} on {options}:\n" + "\n".join(wrong)


def report(
    verb: Verb,
    options: str,
    unrest: float | None,
    recording: power_stage.Recording,
    cuts: list[power.Cut],
    wrong: int,
    seconds: float,
) -> None:
    """One line for each verb and kind of disk, into the file that MDL_POWER_LOG names."""
    moments = recording.moments
    acknowledged = {m.at for m in moments[1:]}
    line = {
        "verb": verb.name,
        "disk": named(options),
        "restless": unrest is not None,
        "cuts": len(cuts),
        "at_an_acknowledgement": sum(c.at in acknowledged for c in cuts),
        "moments": len({c.at for c in cuts}),
        "writes": sum(not r.flush and r.end > moments[0].at for r in recording.disk.records()),
        "flushes": sum(r.flush and r.end > moments[0].at for r in recording.disk.records()),
        "findings": wrong,
        "seconds": round(seconds, 1),
    }
    print(json.dumps(line))
    if path := os.environ.get("MDL_POWER_LOG"):
        with Path(path).open("a") as out:
            out.write(json.dumps(line) + "\n")


_reason = faults.why_not()
UNREST = (0.0, RESTLESS)
UNSYNCED = "fsync,fdatasync,syncfs,sync,sync_file_range,msync"


@pytest.mark.skipif(_reason is not None, reason=f"syncs that do nothing: {_reason}")
# A seed whose sample has both: alone, and beside another program.
@pytest.mark.parametrize(
    ("name", "unrest"), scale.sample(product(["commit DIR", "pull", "push", "clone"], UNREST), 3, seed=3)
)
def test_the_check_finds_damage_where_nothing_is_synced(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, unrest: float
) -> None:
    """With another program that syncs its own file, names come to the disk without the data that they lead to."""
    verb = next(v for v in VERBS if v.name == name)
    program = tmp_path / "mdl-without-syncs"
    strace = f"strace -f -qq -o /dev/null -e trace={UNSYNCED} -e inject={UNSYNCED}:retval=0"
    program.write_text(f'#!/bin/sh\nexec {strace} {binary()} "$@"\n')
    program.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("MDL_BIN", str(program))
        with power_stage.recorded(stage, verb, power.HOSTILE, 1, unrest or None) as recording:
            patch.undo()
            at = recording.moments[-1].at
            found = power_stage.wrong_after(stage, recording, power.Cut(at, 0.0, power.BLOCK, 1))
    assert found, f"{name} was acknowledged and nothing of it synced, and no damage is found"
