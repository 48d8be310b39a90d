"""What each rank writes while it works, one JSON line an event, and how the lines are read back. Raw: nothing here averages.

`t` is the wall clock (seconds since 1970) so that ranks can be laid side by side; durations come from the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paceline.base.errors import BadInput
from paceline.base.files import Lines, read_lines

Means = dict[str, float | None]


def main_name(names: Iterable[str]) -> str | None:
    """The score a run is judged by, the task's first; none where there is a loss alone, whole and in terms."""
    return next((name for name in names if name != "loss" and not name.startswith("loss.")), None)


STARTED, FORKED = "started", "forked"


@dataclass(frozen=True, slots=True)
class Started:
    """The worker's first line. `start`: a program of its own, or forked from one that had imported torch already."""

    rank: int
    host: str
    pid: int
    t: float
    start: str = STARTED
    machine: str | None = None
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What the rank read back after everything was applied."""

    values: dict[str, Any]
    t: float


@dataclass(frozen=True, slots=True)
class Mark:
    """Every `log_every` iterations: this rank's own loss and scores since the last mark, and the pace of all ranks."""

    epoch: int
    iteration: int
    local: Means
    num_local: int
    num_global: int
    seconds: float  # training time since the last mark: evaluation and logging are not in it
    warmup: bool
    t: float


@dataclass(frozen=True, slots=True)
class Epoch:
    """The end of a pass, or an evaluation in its middle: this rank's own figures and, the same on every rank, the reduced ones."""

    split: str  # train | test
    epoch: int
    iteration: int
    local: Means
    num_local: int
    total: Means
    num_total: int
    of: int
    lr: float
    elapsed_s: float  # since this rank's first line, by the clock that nobody can set
    t: float
    middle: bool = False  # of an epoch, which goes on: of the test split alone


@dataclass(frozen=True, slots=True)
class Finished:
    """The rank did all it was asked; its last line.

    `parts` are seconds from the rank's first line to this one; `startup` divides that part further. `hidden_s` is communication
    that ran while the rank computed: it is in no part. `late` says how often the others had to wait for this rank, and how long.
    """

    parts: dict[str, float | None]
    training_s: float
    memory: dict[str, Any]
    weights_hash: str
    num_parameters: int
    score: dict[str, str | None]
    t: float
    startup: dict[str, float] = field(default_factory=dict[str, float])
    hidden_s: float = 0.0
    late: dict[str, float] = field(default_factory=dict[str, float])  # of, last, delay_s, behind, lag_s
    ahead_s: float = 0.0  # this machine's time of day, compared with rank 0's
    energy: dict[str, Any] = field(default_factory=dict[str, Any])
    cores: list[int] | None = None  # those the rank keeps to, where pin=cores
    graph: dict[str, Any] | None = None  # what making graphs took, where the step had any
    traffic: dict[str, float] = field(
        default_factory=dict[str, float]
    )  # messages_per_step, bytes_per_step; alone: nothing
    stopped: dict[str, Any] | None = None  # by, iteration, epoch; none where the run was as long as planned
    best: dict[str, Any] | None = None  # iteration, epoch, score, value and the file of its weights, where keep=best


@dataclass(frozen=True, slots=True)
class Warned:
    """What a reader must know beside the figures: samples that train and test share, say. `kind` is one word for
    scripts."""

    kind: str
    text: str
    t: float


@dataclass(frozen=True, slots=True)
class Broke:
    """The rank could not go on, and says why in one sentence; the traceback, if any, is in its log."""

    kind: str
    why: str
    t: float
    rank: int | None = None


Event = Started | Applied | Mark | Epoch | Finished | Warned | Broke
_KINDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind for kind in (Started, Applied, Mark, Epoch, Finished, Warned, Broke)
}


class EventLog:
    """The append-only file of one rank."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)

    def write(self, event: Event) -> None:
        self._lines.append({"event": type(event).__name__.lower(), **asdict(event)})

    def close(self) -> None:
        self._lines.close()


def read(path: Path) -> Iterator[Event]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            kind = _KINDS[line.pop("event")]
            event = kind(**line)
        except (AttributeError, KeyError, TypeError):  # no mapping; no kind of ours; fields missing or unknown
            raise BadInput(f"{path}, line {number}: not an event of ours; the file is damaged") from None
        yield event
