"""Why not twice as fast? The missing time of a topology in sentences: the answer, the parts, and what may be the reason."""

from __future__ import annotations

from dataclasses import replace

from paceline.records.findings import MIN_RUNS, Interval, Missing
from paceline.records.limits import GROUPS
from paceline.report.words.figures import capitalized, points
from paceline.report.words.held_back import straggler

_SMALL = 0.01  # parts of less than one point are the rest


def answer(row: Missing) -> str:
    match row.clarity:
        case "too few runs":
            return f"No single cause stands out (it takes {MIN_RUNS} paired runs to name one)."
        case "none":
            return "No single cause stands out."
        case "slow ranks":
            return "Mostly one slow rank." if len(row.late) == 1 else f"Mostly {len(row.late)} slow ranks."
        case "mostly":
            return f"Mostly {_name(row.cause or '')}."
        case "above all":
            return f"Above all {_name(row.cause or '')}."


def _name(part: str) -> str:
    """`other` of the training time is not the record's `other`, which is of the wall time and is called unexplained."""
    return "time in no part" if part == "other" else part


def _listed(row: Missing) -> str:
    """What is missing, the largest first, computing in one with its parts behind it; then what was won back."""
    parts = row.parts
    large = [name for name, share in parts.items() if share.mean >= _SMALL]
    computing = [name for name in large if name in GROUPS["compute"]]
    gone = [(_name(name), parts[name], "") for name in large if name not in computing]
    if row.computing is not None:
        detail = ", ".join(f"{name} {round(parts[name].mean * 100)} %" for name in computing)
        several = len(computing) > 1
        gone.append(("compute" if several else computing[0], row.computing, f" ({detail})" if several else ""))
    gone.sort(key=lambda item: -item[1].mean)
    won = [(_name(name), _turned(share), "") for name, share in parts.items() if share.mean <= -_SMALL]
    if round(row.rest.mean * 100) > 0:
        gone.append(("the rest", row.rest, ""))
    elif round(row.rest.mean * 100) < 0:
        won.append(("the rest", _turned(row.rest), ""))
    text, back = (", ".join(f"{name} {points(s)}{detail}" for name, s, detail in items) for items in (gone, won))
    return f"{text}; won back: {back}" if back else text


def _turned(share: Interval) -> Interval:
    low, high = (None if value is None else -value for value in (share.high, share.low))
    return replace(share, mean=-share.mean, low=low, high=high)


def _computing(row: Missing) -> str:
    match row.slower_computing:
        case "threads":
            assert row.threads is not None
            return f" A rank of {row.label} has threads={row.threads[1]} to compute with, one of {row.baseline} {row.threads[0]}."
        case "strong":
            return " Computing: a smaller batch a rank may not take proportionally less time, or the ranks are in each other's way."
        case "weak":
            return f" Computing: a rank takes longer than in {row.baseline} for a batch of the same size."
        case None:
            return ""


def _runs(row: Missing) -> str:
    n = row.missing.n
    if not row.paired:
        return f"n = {n}, not paired: no interval"
    return f"n = {n}" if n > 1 else "n = 1: no interval"


def sentences(row: Missing) -> str:
    fast = f"{row.label} trains {row.speedup:.2f}x as fast as {row.baseline}"
    if not row.shown:
        shown = "nothing is missing" if row.missing.mean <= 0 else "nothing is shown to be missing"
        return f"{fast}, ideal {row.ideal:g}x: {shown} ({points(row.missing)}, {_runs(row)})."
    late = "".join(f" {capitalized(straggler(rank))}." for rank in row.late) if row.late_named else ""
    gone = f"{points(row.missing)} of its time is missing: {_listed(row)} ({_runs(row)})."
    return f"{answer(row)} {fast} instead of {row.ideal:g}x: {gone}{_computing(row)}{late}"
