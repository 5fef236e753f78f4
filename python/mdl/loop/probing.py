"""What a commit says of the probe that its candidates were put to."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from ..commits import Commit
from ..probe import Probe, Probed


def limits(probe: Probe) -> dict[str, str]:
    """Entries of a commit's ``meta``: its approximation is within these limits."""
    return {"mdl.probe.max_relative_error": str(probe.max_relative_error), "mdl.probe.max_kl": str(probe.max_kl)}


def committed(commit: Commit, probe: Probe | None, probed: Sequence[tuple[float, Probed]]) -> Probed | None:
    """What was found of the candidate that was committed, among all numbers and findings of a search. Warns where the
    probe is why there is none."""
    quality = commit.quality
    if probe is None or quality is None:
        return None
    if quality["family"] == "lossless":
        refused = sum(not probe.passes(found) for _, found in probed)
        if refused:
            said = f"the probe refused {refused} of {len(probed)} candidates, and no other one passed"
            if quality["exact"] is None:
                said = "the exact model gives NaN for random inputs, so that nothing can be probed"
            warnings.warn(f"{commit.short_id}: every bit is kept: {said}", RuntimeWarning, stacklevel=2)
        return None
    number = quality["measured"]
    # A number that went through text may differ in its last bit.
    same = (f for n, f in probed if math.isclose(n, number, rel_tol=1e-12) and probe.passes(f))
    return max(same, key=lambda found: found.relative_error, default=None)
