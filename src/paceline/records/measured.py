"""What a record says of its ranks, typed: memory, messages, graphs, lateness, and the row of every rank."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.records.section import Scores, Section
from paceline.records.timing import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Section):
    """Bytes of one rank. `parts` add up to `peak_bytes`; `why` says what could not be measured.

    `step_bytes` is the peak without the data set: what the model and its step need, alike on one process and on ranks that share the
    data. `machine_bytes` is said of the whole run only, not of a rank: what all ranks of a machine hold together.
    """

    peak_bytes: int | None = None
    step_bytes: int | None = None
    steady_bytes: int | None = None
    reserved_bytes: int | None = None
    evaluation_peak_bytes: int | None = None
    peak_in: str | None = None
    rss_bytes: int | None = None
    rss_steady_bytes: int | None = None
    pss_bytes: int | None = None  # of a page that n processes have, an n-th
    machine_bytes: int | None = None
    data_shared: bool | None = None  # the data set lies in memory once for all ranks of a machine
    allocator: str | None = None
    why: str | None = None
    sizes: dict[str, int | None] | None = field(default_factory=dict[str, int | None])
    parts: dict[str, int | None] | None = field(default_factory=dict[str, int | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Late(Section):
    """How often a rank came last to collectives, or after the mean of the others, and how long after it in all."""

    of: float = 0
    last: float = 0
    delay_s: float = 0.0
    behind: float = 0
    lag_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic(Section):
    """Of a training step: `bytes_per_step` is what a rank gives to collectives, `sent_bytes_per_step` what it sends for them where each
    is made by a ring; null in a record from before that was counted."""

    messages_per_step: float | None = None
    bytes_per_step: float = 0.0
    sent_bytes_per_step: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Section):
    """What making the graphs of a step took, and what they could not hold, as torch said it."""

    of: str = "step"
    compile_s: float = 0.0
    graphs: int = 0
    breaks: int = 0
    break_reasons: tuple[str, ...] = ()
    recompiles: int = 0
    recompile_reasons: tuple[str, ...] = ()
    eager_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(Section):
    """One rank's own figures. `train` and `test` are over its own share of the samples: never the model's score."""

    rank: int
    host: str | None = None
    machine: str | None = None  # the same for all that share a kernel, whatever names their hosts have
    machine_cores: int | None = None
    start: str | None = None
    train: Scores = field(default_factory=Scores)
    test: Scores = field(default_factory=Scores)
    peak_bytes: int | None = None
    rss_bytes: int | None = None
    memory: Memory | None = None
    time: Parts | None = None
    hidden_s: float | None = None
    late: Late | None = None
    traffic: Traffic | None = None
    graph: Graph | None = None
    cores: tuple[int, ...] | None = None
