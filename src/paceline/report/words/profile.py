"""What is said of a profile: where its time goes without the profiler, and how far the figures under it can be trusted."""

from __future__ import annotations

from paceline.records.profile import Profile
from paceline.report.words import numbers as show

_NAMES = {"data": "batch assembly"}
_NOISE = 1.05  # a slow-down that two passes on a quiet machine do not show by chance


def sentences(profile: Profile) -> list[str]:
    clean, slowed = profile.clean, float(profile.slowed)
    parts = ", ".join(f"{_NAMES.get(name, name)} {show.number(s, 's')}" for name, s in clean.parts.items())
    cost = f"made it {slowed:.1f}x slower; shares by operator carry that"
    if slowed < _NOISE:  # the first pass met a busier machine than the second
        cost = f"cost less than this machine's own unrest: {slowed:.2f}x the time without it"
    return [
        f"Without a profiler: batch assembly {show.percent(clean.data_share)}, model {show.percent(clean.model_share)} "
        f"of {show.number(clean.total_s, 's')} ({parts}).",
        f"The profiler {cost}.",
    ]
