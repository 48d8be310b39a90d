"""What holds training steps back, in words: the largest group of their time, and ranks that come late."""

from __future__ import annotations

from typing import Literal

from paceline.records.findings import Straggler
from paceline.records.limits import Group
from paceline.report.words.figures import figure_in, points

_BOUND: dict[Group, tuple[str, str]] = {
    "data": ("input-bound", "getting batches"),
    "compute": ("compute-bound", "computing"),
    "waiting": ("waiting for a rank", "waiting for the rank that comes last"),
    "transfer": ("bound by transfer", "moving bytes between ranks"),
}


def bound_name(group: Group) -> str:
    return _BOUND[group][0]


def bound_in_words(group: Group, share: str) -> str:
    """
    >>> bound_in_words("data", "63 %")
    "input-bound: 63 % of the training steps' time goes into getting batches"
    """
    name, into = _BOUND[group]
    return f"{name}: {share} of the training steps' time goes into {into}"


def late_in_words(rank: int, host: str, *, last: str, of: Literal["steps", "collectives"], step: str) -> str:
    """
    >>> late_in_words(1, "node1", last="97 %", of="steps", step="20.1 ms")
    'rank 1 on node1 came 20.1 ms a step after the others, and last in 97 % of the steps'
    """
    return f"rank {rank} on {host} came {step} a step after the others, and last in {last} of the {of}"


def straggler(rank: Straggler) -> str:
    """Of most runs of a cell, with n or with how many runs the rule holds in."""
    often = (
        f"n = {rank.lag_s.n}" if rank.runs == rank.num_runs else f"by the rule in {rank.runs} of {rank.num_runs} runs"
    )
    step = figure_in(rank.lag_s, 1e3, "ms")
    return f"{late_in_words(rank.rank, rank.host, last=points(rank.last), of=rank.of, step=step)} ({often})"
