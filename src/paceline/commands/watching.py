"""What the terminal shows while runs are going, put together from progress (study) and words (report)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from paceline.commands.run import Ready as ReadyRun
from paceline.records.layout import RunDir
from paceline.report.live import Line
from paceline.report.words.progress import (
    Glimpse,
    Position,
    batch_in_words,
    before_study,
    during_study,
    ended,
    made_again,
    words,
)
from paceline.spec.run import Spec
from paceline.study.progress import peek

if TYPE_CHECKING:  # what only a study needs is not loaded for a run: its ranks would start that much later
    from rich.console import Console

    from paceline.commands.study import Ready as ReadyStudy
    from paceline.records.record import Record
    from paceline.study.campaign import PlannedRun
    from paceline.study.estimate import Outlook


def _glimpse(run: RunDir, spec: Spec) -> Glimpse:
    seen = peek(run)
    return Glimpse(
        seen.phase, seen.epoch, spec.epochs, seen.iteration, spec.steps, seen.throughput, loss=seen.loss, score=seen.score
    )  # fmt: skip


class _Watcher:
    """A moving line that is there for the length of a block."""

    def __init__(self, console: Callable[[], Console]) -> None:
        self._line = Line(console)

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def hush(self) -> None:
        """No more moving line: somebody is to be asked something."""
        self._line.__exit__()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, value, trace)


class Single(_Watcher):
    """The line of `paceline run`."""

    def __init__(self, console: Callable[[], Console], what: ReadyRun) -> None:
        super().__init__(console)
        self._what = what

    def __enter__(self) -> Self:
        if (
            self._what.plan.world_size > 1 or self._what.spec.in_queue
        ):  # one process here: there is nothing to translate
            self._line.keep(self._what.plan.said)
        if (batch := batch_in_words(self._what.spec)) is not None:
            self._line.keep(batch)
        return super().__enter__()

    def tick(self, elapsed_s: float, waiting: str) -> None:
        spec = self._what.spec
        self._line.show(
            lambda: f"{spec.task} on {spec.on}: {words(_glimpse(self._what.run, spec), elapsed_s, waiting)}"
        )


class Many(_Watcher):
    """The line of `paceline study`, and a line that stays for every finished run."""

    def __init__(self, console: Callable[[], Console], what: ReadyStudy, look: Outlook, *, retry: bool) -> None:
        from paceline.study.campaign import finished, why_outdated

        super().__init__(console)
        self._what, self._look = what, look
        self._coming = [planned for planned in what.all_planned_runs() if finished(planned, retry=retry) is None]
        self._total = len(what.all_planned_runs())
        self._done = self._total - len(self._coming)
        self._outdated = Counter(reason for planned in self._coming if (reason := why_outdated(planned)))
        self._walls: dict[str, list[float]] = {}

    def __enter__(self) -> Self:
        skipped = [cell for cell in self._what.expanded.plan.cells if cell.skipped]
        self._line.keep(
            before_study(
                self._what.expanded.plan.name, total=self._total, done=self._done, skipped=len(skipped), left_s=self._left(),
                how=self._look.how,
            )
        )  # fmt: skip
        for cell in skipped:
            self._line.keep(f"  skipped {cell.label}: {cell.skipped}")
        for reason, num in self._outdated.items():
            self._line.keep(made_again(num, reason))
        return super().__enter__()

    def _left(self) -> float | None:
        """Measured means replace the outlook as soon as a cell has one."""
        means = {label: sum(walls) / len(walls) for label, walls in self._walls.items()}
        labels = [planned.label for planned in self._coming]
        return replace(self._look, seconds={**self._look.seconds, **means}).of(labels)

    def starting(self, planned: PlannedRun) -> None: ...

    def ticking(self, planned: PlannedRun, elapsed_s: float, waiting: str) -> None:
        left = self._left()
        left_s = None if left is None else left - elapsed_s
        self._line.show(
            lambda: during_study(
                self._place(planned), words(_glimpse(planned.run, planned.spec), elapsed_s, waiting), left_s=left_s
            )
        )

    def _place(self, planned: PlannedRun) -> Position:
        return Position(self._done, self._total, planned.label, planned.repeat)

    def ended(self, planned: PlannedRun, record: Record) -> None:
        self._done += 1
        self._coming = [other for other in self._coming if other.run != planned.run]
        self._walls.setdefault(planned.label, []).append(record.duration_s)
        self._line.keep(ended(self._place(planned), record))
