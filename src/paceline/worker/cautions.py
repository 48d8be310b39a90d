"""What a reader must know beside the figures of a run, as far as it is known before its first step."""

from __future__ import annotations

from torch.nn.modules.batchnorm import _BatchNorm

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.schedules import SCHEDULES
from paceline.spec.verdict import Note
from paceline.worker.assemble import Parts
from paceline.worker.tasks.hooks import parameters_of

_LOOKS, _SMALL = 1000, 0.1


def cautions(parts: Parts) -> list[Note]:
    """The same on every rank."""
    again = [("again", parts.spec.again)] if parts.spec.again else []
    own = [*again, *_batch_norm(parts), *_evaluation(parts), *_draws(parts), *_ignored(parts), *_rates(parts)]
    return [*parts.task.verdict.notes, *own]


def _num_cuts(parts: Parts) -> int:
    return parts.sharding.share.num * parts.spec.accumulate


def _batch_norm(parts: Parts) -> list[Note]:
    spec, cuts = parts.spec, _num_cuts(parts)
    normalises = any(isinstance(module, _BatchNorm) for module in parts.model.modules())
    if cuts == 1 or not normalises or spec.buffers == "sync":
        return []
    ranks = [f"on={spec.on}"] if parts.sharding.share.num > 1 else []
    cause = " ".join(ranks + ([f"accumulate={spec.accumulate}"] if spec.accumulate > 1 else []))
    ways = "buffers=sync" if spec.accumulate == 1 else "accumulate=1"
    text = (
        f"the model has BatchNorm, and {cause} cuts each batch of {spec.batch} into {cuts} parts, which it normalises one by one "
        f"(about {max(1, spec.batch // cuts)} samples each): this is another model than on=1x1 accumulate=1 trains, and with small "
        "parts a worse one; "
        f"use {ways}, or larger batches"
    )
    return [("batchnorm", text)]


def _evaluation(parts: Parts) -> list[Note]:
    verdict, notes = parts.task.verdict, list[Note]()
    if verdict.together_in_evaluation:
        text = (
            "in evaluation too a sample's outputs depend on the samples beside it, so scores depend on "
            f"test_batch={parts.spec.test_batch}"
        )
        notes.append(("test-batch", text))
    if verdict.loss == "coupled":
        text = (
            "the loss couples the samples of a batch, so the test loss is that of batches of "
            f"test_batch={parts.spec.test_batch}; scores do not depend on it"
        )
        notes.append(("test-batch", text))
    return notes


def _draws(parts: Parts) -> list[Note]:
    verdict, notes = parts.task.verdict, list[Note]()
    graph = GRAPHS[parts.spec.graph]
    if verdict.draws and graph.is_graph and not graph.is_exported and not parts.spec.is_step_graph:
        text = (
            f"forward draws random numbers, and graph={parts.spec.graph} graph_of=model draws others than graph=eager: the same in "
            "distribution, not the same numbers; graph_of=step draws the same"
        )
        notes.append(("draws", text))
    if verdict.draws and _num_cuts(parts) > 1:
        text = (
            "forward or loss draws random numbers, and each part of a batch draws its own: the same in distribution as with "
            "on=1x1 accumulate=1, not the same numbers"
        )
        notes.append(("draws", text))
    if verdict.data_draws and parts.sharding.share.num > 1:
        text = (
            f"samples of the training data are made with random numbers, and on={parts.spec.on} each rank draws its own: the same in "
            "distribution as with on=1x1, not the same numbers; augment(batch, keys) draws the same at every world size"
        )
        notes.append(("draws", text))
    return notes


def _ignored(parts: Parts) -> list[Note]:
    return [
        (
            "ignored",
            f"{signature} is not called: with other parameters than the task's own hook of that name it is taken for a function of yours",
        )
        for signature in parts.task.ignored
    ]


def _rates(parts: Parts) -> list[Note]:
    """A schedule that returns rates, where a factor was meant, trains with almost none."""
    schedule = parts.task.schedule
    if not SCHEDULES[parts.spec.schedule].is_tasks or schedule is None or parameters_of(schedule)[0] != "step":
        return []
    steps = parts.by_number.steps
    largest = max(parts.update.rates.at(step) for step in range(0, steps, max(1, steps // _LOOKS)))
    if largest >= _SMALL * parts.spec.lr:
        return []
    text = (
        f"schedule(step, steps) returns what lr={parts.spec.lr:g} is multiplied by, and the highest rate of the run is {largest:.2g}; if "
        "it returns rates, divide them by lr"
    )
    return [("schedule", text)]
