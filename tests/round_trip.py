"""Train, copy the state out, train on, put it back, train on again: both ways must end with the same bits. So must a third: a run
that was just assembled, as in a new process, gets the state and trains on. And an evaluation in the middle of an epoch changes none of
it. For one rank or several."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo

from paceline.spec.run import Spec
from paceline.worker.assemble import Parts, assemble
from paceline.worker.evaluate import evaluate, set_aside
from paceline.worker.loop import epoch_pieces, steps
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.tally import Tally
from paceline.worker.progress import Progress
from paceline.worker.resilience.kept import KeptWeights
from paceline.worker.shared_data import load_data
from paceline.worker.step.state import Snapshot
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.world.join import World

NUM, BATCH = 44, 8  # a short last batch
BEFORE, AFTER = (
    8,
    9,
)  # steps: copied out in the middle of an epoch, and trained on through its end and the next one's beginning


def network() -> torch.nn.Module:
    """With running statistics, random numbers and a parameter that nothing uses."""
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 12), torch.nn.BatchNorm1d(12), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(12, 4)
    )
    model.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    return model


def task(**more: Any) -> Task:
    generator = torch.Generator().manual_seed(11)
    x, y = torch.randn(NUM, 6, generator=generator), torch.randint(0, 4, (NUM,), generator=generator)
    return Task("round trip", network, lambda: (x, y), lambda: (x, y), usual_forward, usual_loss, usual_score, **more)


def spec_of(**asked: Any) -> Spec:
    given: dict[str, Any] = {
        "task": "features", "threads": 1, "device": "cpu", "batch": BATCH, "epochs": 5, "weight_decay": 0.0, "update": "single",
        "lr": 0.01, "log_every": 3, **asked,
    }  # fmt: skip
    return Spec(**given)


def assembled(spec: Spec, world: World, own: Task) -> Parts:
    data = load_data(spec, own, rank=world.rank, local_rank=world.local_rank)
    parts = assemble(spec, own, data, world, Stopwatch("startup"), (None, "not asked"))
    parts.model.train()
    return parts


def stepped(parts: Parts, progress: Progress, num: int) -> None:
    """`num` steps as `train` makes them. Where they end an epoch, what comes after its last step is still to be done."""
    position = parts.state.position
    while num:
        pieces = epoch_pieces(parts)
        for num_global in itertools.islice(steps(parts, pieces, progress), num):
            progress.after_step(position.epoch, num_global)
            num -= 1
        if num:
            _ended(parts, progress)


def _ended(parts: Parts, progress: Progress) -> None:
    position = parts.state.position
    progress.mark(position.epoch)
    position.epoch, position.in_epoch = position.epoch + 1, 0
    evaluate(parts)
    progress.epoch = Tally()


def advance(parts: Parts, progress: Progress, num: int) -> None:
    """`num` steps from where the state stands, through the ends of epochs, where the model is evaluated."""
    stepped(parts, progress, num)
    if parts.state.position.in_epoch == len(epoch_pieces(parts)):
        _ended(parts, progress)


def round_trip(
    spec: Spec, world: World, own: Task, *, prepare: Any = None, fresh: bool = True, before: int = BEFORE
) -> dict[str, Any]:
    """What the test compares: digests and weights of the ways, and that they moved at all. `fresh`: the third way too."""
    parts, progress = started(spec, world, own, prepare)
    advance(parts, progress, before)
    kept, weights = parts.state.copy_out(), KeptWeights(parts.model)
    weights.take()
    first = kept.digest()
    advance(parts, progress, AFTER)
    straight = parts.state.copy_out()
    put_back = set_aside(parts)
    evaluate(parts)
    put_back()
    disturbed = differences(straight, parts.state.copy_out())
    parts.state.put_back(kept)
    again = parts.state.digest()
    advance(parts, progress, AFTER)
    back = parts.state.copy_out()
    weights.put_back()
    parts.step.close()
    different = differences(straight, back)
    if fresh:
        other, theirs = started(spec, world, own, prepare)
        other.state.put_back(kept)
        advance(other, theirs, AFTER)
        different += [f"resumed: {name}" for name in differences(straight, other.state.copy_out())]
        other.step.close()
    return {
        "put back": first == again, "kept": _same_weights(kept, parts.state.copy_out()), "different": different, "disturbed": disturbed,
        "equal": straight.digest() == back.digest(), "moved": first != straight.digest(), "step": parts.step.read_back(),
        "iteration": straight.values["position"]["iteration"], "names": sorted(straight.tensors),
        "weights": [tensor for name, tensor in straight.tensors.items() if name.startswith("parameters/")],
    }  # fmt: skip


def started(spec: Spec, world: World, own: Task, prepare: Any) -> tuple[Parts, Progress]:
    torch._dynamo.reset()  # a compiler that has seen this model would make no graph again
    parts = assembled(spec, world, own)
    parts = parts if prepare is None else prepare(parts)
    observe: Any = SimpleNamespace(write=lambda event: None)
    return parts, Progress(parts, observe)


def _same_weights(one: Snapshot, other: Snapshot) -> bool:
    weights = [name for name in one.tensors if name.startswith(("parameters/", "buffers/"))]
    return bool(weights) and all(_same(one.tensors[name], other.tensors[name]) for name in weights)


def differences(one: Snapshot, other: Snapshot) -> list[str]:
    different = [n for n in one.tensors if not _same(one.tensors[n], other.tensors.get(n))]
    return different + [n for n in one.values if one.values[n] != other.values[n]]


def _same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """To the bit."""
    if other is None:
        return False
    return one.contiguous().reshape(-1).view(torch.uint8).equal(other.contiguous().reshape(-1).view(torch.uint8))
