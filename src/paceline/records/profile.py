"""The record of a run that was profiled: what the profiler saw, typed, and nothing that could be taken for a timing or a result.

A profiler slows what it watches, so such a run must not stand in a table, a comparison or an estimate beside runs that were timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.records.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFigures(Section):
    """`own` leaves out the modules inside; bytes are those of its own operators."""

    calls: int = 0
    forward_s: float = 0.0
    own_forward_s: float = 0.0
    backward_s: float = 0.0
    own_backward_s: float = 0.0
    device_s: float = 0.0
    own_device_s: float = 0.0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRow(ModuleFigures):
    name: str
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow(Section):
    """`self_s` leaves out what the operator calls; `backward_s` is the part of it in the backward pass."""

    name: str
    calls: int = 0
    self_s: float = 0.0
    backward_s: float = 0.0
    total_s: float = 0.0
    device_s: float = 0.0
    self_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame(Section):
    """A frame of the flame chart: all calls that came the same way, together."""

    name: str
    kind: str
    calls: int = 0
    total_s: float = 0.0
    children: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UndisturbedPass(Section):
    """The same batches without the profiler."""

    parts: dict[str, float] = field(default_factory=dict[str, float])
    total_s: float = 0.0
    data_share: float | None = None
    model_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds(Section):
    forward_s: float = 0.0
    backward_s: float = 0.0
    device_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Section):
    """`slowed` is the time under the profiler over the time without it; `outside` is what no module did."""

    kind: str = field(default="training", metadata={"key": "pass"})
    num_batches: int = 0
    batch: int = 0
    device: str = "cpu"
    clean: UndisturbedPass = field(default_factory=UndisturbedPass)
    slowed: float = 1.0
    operators: tuple[OperatorRow, ...] = ()
    modules: tuple[ModuleRow, ...] = ()
    types: dict[str, ModuleFigures] = field(default_factory=dict[str, ModuleFigures])
    model: PassSeconds = field(default_factory=PassSeconds)
    outside: PassSeconds = field(default_factory=PassSeconds)
    tree: Frame | None = None
    trace: str = ""
