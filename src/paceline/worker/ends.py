"""How a run ends: when it stops before its planned length, and whose weights it leaves beside the last. `stop_at` and `keep` act here."""

from __future__ import annotations

import math
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.records.better import is_better, reaches
from paceline.records.events import main_name
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.worker.measure.tally import Tally
from paceline.worker.resilience.kept import KeptWeights
from paceline.worker.step.state import TrainState
from paceline.worker.tasks.task import Task, better_of
from paceline.worker.world.collectives import broadcast
from paceline.worker.world.join import World


class Ends:
    """`stopped`: what ended the run, and where. `best`: the best evaluation so far. Both are the same on every rank."""

    def __init__(self, spec: Spec, task: Task, world: World, state: TrainState) -> None:
        self._spec, self._task, self._world, self._position = spec, task, world, state.position
        self.stopped: dict[str, Any] | None = None
        self.best: dict[str, Any] | None = None
        self._since = 0  # evaluations since the best
        self._kept = KeptWeights(state.model) if spec.keep == "best" else None
        self._asked = self._kept is not None or spec.stop_at is not None
        if self._asked:
            state.others["ends"] = self

    def judge(self, total: Tally, epoch: int, *, last: bool) -> None:
        """After each evaluation, while the model is the one that was scored. `last`: the run is over in any case, so nothing stops it."""
        if not self._asked:
            return
        name, better = self._judged_by(total)
        value = self._everybodys(total.means()[name])
        if not math.isfinite(value):  # whoever writes it down fails the run
            return
        here = {"iteration": self._position.iteration, "epoch": epoch}
        found = self.best is None or is_better(value, self.best["value"], better)
        self._since = 0 if found else self._since + 1
        if not last and self._should_stop(value, better):
            self.stopped = {"by": str(self._spec.stop_at).partition(":")[0], **here}
        if found:
            self.best = {**here, "score": name, "value": value}
            if self._kept is not None and not last and self.stopped is None:  # else they are the last
                self._kept.take()

    def best_weights(self, run: RunDir) -> dict[str, Any] | None:
        """For the record, after the last evaluation: the best one, and the file its weights are in."""
        if self._kept is None or self.best is None:
            return None
        file = run.weights if self._last_is_best else run.best
        return {**self.best, "weights": file.name}

    def put_best_back(self) -> bool:
        """Once the last weights are on disk: the model gets the best ones. False: it has them."""
        if self._kept is None or self.best is None or self._last_is_best:
            return False
        self._kept.put_back()
        return True

    @property
    def _last_is_best(self) -> bool:
        return self.best is not None and self.best["iteration"] == self._position.iteration

    def _should_stop(self, value: float, better: str) -> bool:
        spec = self._spec
        if spec.stop_at is None:
            return False
        if spec.patience is not None:
            return self._since >= spec.patience
        assert spec.target is not None, "a rule refuses stop_at=target without one"
        return reaches(value, spec.target, better)

    def _judged_by(self, total: Tally) -> tuple[str, str]:
        """The main score, and which way it is good. A task that has none is judged by its loss, but a target is no loss."""
        spec, name = self._spec, main_name(total.names)
        asked = f"keep={spec.keep}" if spec.stop_at is None else f"stop_at={spec.stop_at}"
        by_target = spec.stop_at is not None and spec.patience is None
        if name is None and "loss" in total.names and not by_target:
            return "loss", "lower"
        if name is None:
            what = "score" if by_target else "score and no loss"
            raise RunFailed(f"{asked}: {self._task.name} has no {what} on its test set to be judged by", kind="task")
        better = better_of(self._task, name)
        if better is None:
            raise RunFailed(
                f"{asked}: {self._task.name} does not say which way its {name} is good: add better = 'higher' or better = 'lower' to it",
                kind="task",
            )
        return name, better

    def _everybodys(self, value: float | None) -> float:
        """Rank 0's, to the bit. Sums over ranks are the same on all of them as a rule; where layers are cut, or under MPI, nobody
        promises that, and ranks of which one goes on wait for ever."""
        own = torch.tensor([math.nan if value is None else value], dtype=torch.float64)
        return float(broadcast(own, self._world).item())

    # ---- part of the run's state ----

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "since": self._since}

    def restore(self, values: dict[str, Any]) -> None:
        self.best, self._since = values["best"], values["since"]
