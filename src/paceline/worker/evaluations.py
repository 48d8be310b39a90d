"""When the model is evaluated: after every epoch and, where that is asked for, every so many steps between."""

from __future__ import annotations

from paceline.worker.assemble import Parts
from paceline.worker.evaluate import Evaluated, evaluate, set_aside
from paceline.worker.measure.observer import Observer
from paceline.worker.measure.tally import Tally
from paceline.worker.progress import warn_of_twice, write_pass
from paceline.worker.tasks.task import users_code
from paceline.worker.world.seed import kept


class Evaluations:
    def __init__(self, parts: Parts, observe: Observer) -> None:
        self.parts, self.observe = parts, observe
        self._names: list[str] | None = None  # of the scores, once all ranks have agreed on them
        self._final: Evaluated | None = None  # the one in the middle of an epoch that ended the run

    def due(self, steps_of_epoch: int) -> bool:
        """After a step. At the end of an epoch there is an evaluation in any case."""
        every, position = self.parts.spec.evaluate_every, self.parts.state.position
        return every is not None and position.iteration % every == 0 and position.in_epoch < steps_of_epoch

    def between(self, epoch: int) -> bool:
        """In the middle of an epoch, as if it were not: training goes on with the bits it had. True: it does not go on. Nothing is put
        back then, so that the run leaves the model that was scored, and `after` writes that score down."""
        self.parts.watch.switch("evaluation")
        put_back = set_aside(self.parts)
        found = self._evaluated(epoch, last=False)
        if self.parts.ends.stopped is not None:
            self._final = found
            return True
        put_back()
        write_pass(self.observe, self.parts, "test", epoch, (found.local, found.total), middle=True)
        self.parts.watch.switch("data")
        return False

    def after(self, epoch: int, *, last: bool) -> Tally:
        """At the end of an epoch: the ranks' buffers and parameters become one model's, and training goes on with that."""
        self.parts.watch.switch("evaluation")
        found = self._final or self._evaluated(epoch, last=last)
        write_pass(self.observe, self.parts, "test", epoch, (found.local, found.total))
        return found.total

    def _evaluated(self, epoch: int, *, last: bool) -> Evaluated:
        parts = self.parts
        parts.memory.evaluating(True)
        # What the model or the data draws here must not move what training draws: it would depend on test_batch.
        with kept(parts.world.device), users_code(f"{parts.task.name} (evaluation)", parts.task.source):
            found = evaluate(parts, self._names)
            warn_of_twice(self.observe, parts, "test")
        parts.memory.evaluating(False)
        self._names = found.names
        parts.ends.judge(found.total, epoch, last=last)
        return found
