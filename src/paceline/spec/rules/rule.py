"""What a rule is, and all it may use. The rules themselves are in the other files of this folder, by subject."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.spec.host import Host
from paceline.spec.inputs import Inputs
from paceline.spec.run import Spec
from paceline.spec.verdict import Verdict


@dataclass(frozen=True, slots=True)
class DataShape:
    """What rules need of a task's data; facts of a user's task, or what is known of a built-in one."""

    kind: str
    num: int | None = None  # samples, where that is known
    endless: bool = False  # nobody can know: a stream without a length


@dataclass(frozen=True, slots=True)
class Known:
    """All a rule may look at."""

    host: Host
    train: DataShape | None = None
    knows_better: bool = True
    # Of a `describe` job, where there was one: the shapes of linear layers' weights, and the capability of the GPUs (the least).
    linear: tuple[tuple[int, int], ...] | None = None
    capability: tuple[int, int] | None = None
    # Of the task, where somebody looked: whether it says how layers are cut, has embedding tables, and any with sparse gradients.
    tensor_plan: bool | None = None
    tables: bool | None = None
    sparse: bool | None = None
    verdict: Verdict | None = None  # of the probe: how loss and scores recombine
    own_optimizer: bool | None = None  # it defines optimizer(model, lr), or optimizers(model, lr)
    own_schedule: bool | None = None  # it defines schedule(...)
    own_step: bool | None = None  # it defines step(model, batch, optimizers)
    sets_by_step: bool | None = None  # it defines on_step or on_epoch
    inputs: Inputs | None = None  # what it depends on beside its settings; no rule asks for it, the spec holds it


@dataclass(frozen=True, slots=True)
class Rule:
    """`why` is a format string over the spec's settings; it says what was asked, why it cannot be, and what to do."""

    name: str
    breaks: Callable[[Spec, Known], bool]
    why: str
