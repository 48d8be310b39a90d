"""A run's trained model in any process: its task, its weights, its test scores. No world, no sharding, no optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import read_json
from paceline.records.layout import RunDir
from paceline.records.record import Record, load
from paceline.spec.inputs import changed, changed_modules
from paceline.spec.run import Spec
from paceline.worker.measure.tally import Tally
from paceline.worker.resilience.weights import restore
from paceline.worker.score import score_all
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.shared_data import load_split
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.task import Task, users_code
from paceline.worker.transform.precision import Arithmetic, dtype, entrance
from paceline.worker.world.seed import kept, seed_everything


@dataclass(frozen=True, slots=True)
class Trained:
    """`task_module`: the task's forward around the model, in evaluation mode."""

    spec: Spec
    task_module: TaskModule
    device: torch.device
    changed_source: bool = False

    @property
    def model(self) -> torch.nn.Module:
        return self.task_module.model

    def evaluate(self) -> Tally:
        """The run's own test set, each sample once, in this process; refused where the files it is read from have changed."""
        what = [] if self.spec.inputs is None or self.changed_source else changed(self.spec.inputs)
        if what:
            raise BadInput(
                f"{', '.join(what)} changed since the run, so its test set may be another one: train again, or load with "
                "changed_source=True"
            )
        feed = load_split(self.spec, self.task_module.task, "test", self.device)
        arithmetic = Arithmetic(self.spec, self.device, None)
        return score_all(self.task_module, feed, arithmetic, batch=self.spec.test_batch)


def load_trained(
    run_dir: str | PathLike[str], device: str = "cpu", *, weights: str = "last", changed_source: bool = False
) -> Trained:
    """`weights`: last or best. `changed_source`: load them into what the task's files are now, whatever they were."""
    run = RunDir(Path(run_dir))
    if not run.weights.exists():
        raise BadInput(f"{run.path}: no trained weights in it (a run that completed leaves {run.weights.name})")
    if not run.finished or not (record := load(run.path)).completed:
        raise BadInput(f"{run.path}: the run did not complete, so its weights are no result")
    file = run.weights if weights == "last" else _best(record, weights)
    spec = Spec.model_validate(read_json(run.spec))
    what = [] if spec.inputs is None or changed_source else changed_modules(spec.inputs)
    if what:
        raise BadInput(
            f"{run.path}: {', '.join(what)} changed since this run, so its weights would go into another model: put the source back, train "
            "again, or load with changed_source=True"
        )
    with kept(torch.device("cpu")):
        seed_everything(spec.seed)
        task = load_task(spec.task, spec.params, spec.data, spec.probe)
        model = _built(task, spec.seed).to(dtype(spec))
    restore(model, file)
    place = torch.device(device)
    return Trained(spec, TaskModule(model.to(place).eval(), task, entrance(spec, place)), place, changed_source)


def _built(task: Task, seed: int) -> torch.nn.Module:
    """A model may be made with what the data has shown, which is loaded only if the model asks for it."""
    seed_everything(seed)
    try:
        return task.build_model()
    except RunFailed:
        for load_data in (task.train_data, task.test_data):
            seed_everything(seed)
            with users_code(f"{task.name}: its data, which model() needs", task.source):
                load_data()
        seed_everything(seed)
        return task.build_model()


def _best(record: Record, weights: str) -> Path:
    if weights != "best":
        raise BadInput(f"weights={weights!r}: must be 'last' or 'best'")
    if record.best is None or record.best.weights is None:
        raise BadInput(
            f"{record.run_dir}: it kept its last weights alone; a run with keep=best leaves the best as well"
        )
    if not (file := Path(record.best.weights)).exists():
        raise BadInput(f"{file}: no such file; the best weights of this run were removed")
    return file
