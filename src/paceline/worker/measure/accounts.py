"""From the frames of a trace to accounts: time, memory and calls by module, by operator, and as one tree. Sums only, no torch.

Every frame's own time (its total less its children's) is booked once: on one operator, on the innermost module around it, and
on one frame of the tree. A backward frame belongs to the module whose forward operator made its autograd node, by torch's own
link: the node's sequence number and the thread of the forward pass.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from paceline.worker.measure.ranges import MODULE, PHASE

ENGINE = "autograd::engine::evaluate_function: "
FORWARD, BACKWARD = "forward", "backward"
Kind = Literal["phase", "module", "operator"]


@dataclass(slots=True)
class Frame:
    """One call in a trace, as the profiler has it. Bytes and device seconds are its own, without its children's."""

    name: str
    start_s: float
    total_s: float
    children: list[Frame] = field(default_factory=list["Frame"])
    thread: int = 1
    sequence: int = -1
    forward_thread: int = 0  # of a backward frame: where its node was made
    own_bytes: int = 0
    own_device_s: float = 0.0
    own_s: float = field(init=False)
    kind: Kind = field(init=False)

    def __post_init__(self) -> None:
        self.own_s = self.total_s - sum(child.total_s for child in self.children)
        marked = "phase" if self.name.startswith(PHASE) else "operator"
        self.kind = "module" if self.name.startswith(MODULE) else marked

    def add(self, child: Frame) -> None:
        self.children.append(child)
        self.own_s -= child.total_s

    @property
    def says(self) -> str:
        """Its name without the marks of a range or of the engine."""
        if self.kind == "module":
            return self.name.removeprefix(MODULE).rpartition("|")[0]
        return self.name.removeprefix(PHASE).removeprefix(ENGINE)


@dataclass(slots=True)
class ModuleAccount:
    """`own` leaves out the modules it calls; bytes are those of its own operators: allocated, and kept when they returned."""

    calls: int = 0
    forward_s: float = 0.0
    own_forward_s: float = 0.0
    backward_s: float = 0.0
    own_backward_s: float = 0.0
    device_s: float = 0.0
    own_device_s: float = 0.0
    bytes: int = 0
    backward_bytes: int = 0


@dataclass(slots=True)
class OperatorAccount:
    calls: int = 0
    self_s: float = 0.0
    forward_s: float = 0.0  # of self_s, in the forward phase
    backward_s: float = 0.0  # of self_s, in the backward pass
    total_s: float = 0.0
    device_s: float = 0.0
    self_bytes: int = 0


@dataclass(slots=True)
class Node:
    """A frame of the flame chart: all calls that came the same way, together."""

    name: str
    kind: Kind
    calls: int = 0
    own_s: float = 0.0
    children: dict[tuple[Kind, str], Node] = field(default_factory=dict[tuple[Kind, str], "Node"])

    def child(self, kind: Kind, name: str) -> Node:
        return self.children.setdefault((kind, name), Node(name, kind))

    @property
    def total_s(self) -> float:
        return self.own_s + sum(child.total_s for child in self.children.values())

    def plain(self, at_least_s: float) -> dict[str, Any]:
        """As JSON, the largest first; what is smaller than `at_least_s` is left to its parent's own time."""
        rows = [child.plain(at_least_s) for child in self.children.values() if child.total_s >= at_least_s]
        rows.sort(key=lambda row: -row["total_s"])
        return {"name": self.name, "kind": self.kind, "calls": self.calls, "total_s": self.total_s, "children": rows}


Chain = tuple[str, ...]  # modules around something, the outermost first


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a frame was met: its phase, the modules around it, the tree's node above it."""

    phase: Node
    chain: Chain
    node: Node
    backward: bool


class Accounts:
    """Books frames; the roots of every thread of a trace, in any order."""

    def __init__(self, roots: Sequence[Frame], *, name: str) -> None:
        self.modules: dict[str, ModuleAccount] = {}
        self.operators: dict[str, OperatorAccount] = {}
        self.tree = Node(name, "phase", calls=1)
        self.phase_s: defaultdict[str, float] = defaultdict(float)
        self.device_s = 0.0  # of the forward and backward phases
        self.in_modules_s = 0.0  # calls of modules from outside any module, whole: what the own times must add up to
        self._inside: Counter[str] = Counter()  # operators that are open, by name: a recursion is counted once
        phases = sorted((frame for frame in roots if frame.kind == "phase"), key=attrgetter("start_s"))
        self._links = dict(_links(phases))
        elsewhere = list(_elsewhere(roots, phases))
        away_s: defaultdict[int, float] = defaultdict(float)
        for owner, frame in elsewhere:
            away_s[id(owner)] += frame.total_s
        for phase in phases:
            self._phase(phase, away_s=away_s[id(phase)])
        for owner, frame in elsewhere:
            node = self.tree.child("phase", owner.says)
            self._book(frame, _Place(node, (), node, owner.says == BACKWARD))

    def _phase(self, frame: Frame, *, away_s: float) -> None:
        """While another thread does a phase's work (backward on a GPU), this one waits: the time is booked on the other thread."""
        node = self.tree.child("phase", frame.says)
        node.calls += 1
        node.own_s += max(0.0, frame.own_s - away_s)
        self.phase_s[frame.says] += frame.total_s
        for child in frame.children:
            self._book(child, _Place(node, (), node, frame.says == BACKWARD))

    def _book(self, frame: Frame, at: _Place) -> None:
        here = self._moved(frame, at)
        self._on_modules(frame, here)
        here.node.own_s += frame.own_s
        if here.phase.name in (FORWARD, BACKWARD):
            self.device_s += frame.own_device_s
        if frame.kind == "operator":
            self._on_operator(frame, here)
        self._inside[frame.name] += 1
        for child in frame.children:
            self._book(child, here)
        self._inside[frame.name] -= 1

    def _moved(self, frame: Frame, at: _Place) -> _Place:
        """The place inside this frame."""
        if frame.kind == "module":
            node = at.node.child("module", frame.says)
            node.calls += 1
            if not at.backward:  # recomputed in the backward pass (checkpointing): not another call of the module
                self.modules.setdefault(frame.says, ModuleAccount()).calls += 1
                self.in_modules_s += 0.0 if at.chain else frame.total_s
            return _Place(at.phase, (*at.chain, frame.says), node, at.backward)
        chain, node, backward = at.chain, at.node, at.backward
        if frame.name.startswith(ENGINE):
            backward = True
            if (linked := self._links.get((frame.forward_thread, frame.sequence))) is not None:
                chain, node = linked, at.phase
                for name in chain:
                    node = node.child("module", name)
        if node.kind == "operator" and node.name == frame.says:  # the engine's frame and the node's own have one name
            return _Place(at.phase, chain, node, backward)
        node = node.child("operator", frame.says)
        node.calls += 1
        return _Place(at.phase, chain, node, backward)

    def _on_modules(self, frame: Frame, here: _Place) -> None:
        for name in set(here.chain):
            account = self.modules.setdefault(name, ModuleAccount())
            account.device_s += frame.own_device_s
            if here.backward:
                account.backward_s += frame.own_s
            else:
                account.forward_s += frame.own_s
        if not here.chain:
            return
        innermost = self.modules[here.chain[-1]]
        innermost.own_device_s += frame.own_device_s
        # Only bytes of operators count: what is freed between them, or by the autograd engine, is no operator's result.
        kept = 0 if frame.kind == "module" or frame.name.startswith(ENGINE) else frame.own_bytes
        if here.backward:
            innermost.own_backward_s += frame.own_s
            innermost.backward_bytes += kept
        else:
            innermost.own_forward_s += frame.own_s
            innermost.bytes += kept

    def _on_operator(self, frame: Frame, here: _Place) -> None:
        account = self.operators.setdefault(frame.name, OperatorAccount())
        account.self_s += frame.own_s
        account.device_s += frame.own_device_s
        account.self_bytes += frame.own_bytes
        if here.backward:
            account.backward_s += frame.own_s
        elif here.phase.name == FORWARD:
            account.forward_s += frame.own_s
        if not self._inside[frame.name]:  # torch counts an operator that only calls itself once, too
            account.calls += 1
            account.total_s += frame.total_s


def _links(phases: Sequence[Frame]) -> Iterator[tuple[tuple[int, int], Chain]]:
    """(thread, sequence number) -> the modules around the operator that made that node.

    Operators carry the number the next node will get, so several may have it before one makes the node: the last one does.
    """
    last: dict[tuple[int, int], tuple[float, Chain]] = {}
    open_: list[tuple[Frame, Chain]] = [(phase, ()) for phase in phases]
    while open_:
        frame, chain = open_.pop()
        if frame.kind == "module":
            chain = (*chain, frame.says)
        if frame.sequence >= 0 and not frame.forward_thread:
            key = (frame.thread, frame.sequence)
            if key not in last or frame.start_s >= last[key][0]:
                last[key] = (frame.start_s, chain)
        open_ += [(child, chain) for child in frame.children]
    for key, (_, chain) in last.items():
        yield key, chain


def _elsewhere(roots: Sequence[Frame], phases: Sequence[Frame]) -> Iterator[tuple[Frame, Frame]]:
    """(phase, frame) of what the autograd engine does on its own thread during a phase. Other threads are left out."""
    own = {phase.thread for phase in phases}
    starts = [phase.start_s for phase in phases]
    for frame in roots:
        if frame.thread in own or not frame.name.startswith(ENGINE):
            continue
        index = bisect_right(starts, frame.start_s) - 1
        if index >= 0 and frame.start_s <= phases[index].start_s + phases[index].total_s:
            yield phases[index], frame
