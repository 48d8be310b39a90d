"""What forward or loss leaves changed: a batch is computed, then others, then the first again. What only counts calls shows in numbers of
Python or in buffers, and what is kept of samples shows in the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from paceline.spec.verdict import Verdict
from paceline.worker.probe.losses import Look
from paceline.worker.probe.subject import Places, Subject, copies, differ, put_back
from paceline.worker.tasks.by_number import ByNumber
from paceline.worker.tasks.content import digest
from paceline.worker.tasks.dataset_feed import DatasetFeed
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.returned import loss_terms
from paceline.worker.tasks.task import Task, no_loss
from paceline.worker.tasks.tree import leaves_of
from paceline.worker.transform import side_effects
from paceline.worker.world.seed import seed_everything

_FETCHED = 4  # samples
Loss = Callable[[Places], Look]


class Looks(NamedTuple):
    """At all samples, at parts of them, and at all again."""

    first: Look
    parts: Mapping[Places, Look]
    again: Look


def in_training(
    subject: Subject, loss: Loss, whole: Places, parts: Sequence[Places], tolerance: float
) -> tuple[dict[str, Any], Looks]:
    """For the verdict; and the looks it was found by."""
    subject.puts_back = False
    model = subject.model
    python, buffers = side_effects.numbers_of(model, subject.task), copies(model)
    first = loss(whole)
    later = side_effects.numbers_of(model, subject.task)
    numbers = [name for name in {**python, **later} if python.get(name) != later.get(name)]
    moved = [name for name, buffer in model.named_buffers() if not _same(buffers.get(name), buffer)]
    looks = Looks(first, {places: loss(places) for places in parts}, loss(whole))
    before, after = first.terms, looks.again.terms
    computes = any(differ(before[name].value, after[name].value, tolerance) for name in before)
    unseen = ["what the loss computes"] if computes and not numbers and not moved else []
    by_calls = bool(moved) and not numbers and _by_calls(subject, loss, whole, parts)
    subject.puts_back = True
    changes = {
        "changes": (*numbers, *moved, *unseen),
        "changes_by": "calls" if by_calls else "data",
        "changes_python": bool(numbers or unseen),
    }
    return changes, looks


def in_evaluation(
    subject: Subject, whole: Places, parts: Sequence[Places], tolerance: float
) -> tuple[dict[str, bool], dict[Places, Any]]:
    """And the outputs, where nothing moves. Buffers that an evaluation moves are what the model is made for: each batch sees them as
    they are."""
    task, model = subject.task, subject.model
    if not task.evaluates:
        return {}, {}
    counts = False

    def look(outputs: Any, batch: Any) -> tuple[list[torch.Tensor], Any]:
        nonlocal counts
        terms = {} if task.loss is no_loss else loss_terms(task.loss(outputs, batch), Verdict(), name=task.name)
        counts |= side_effects.numbers_of(model, task) != before
        leaves = [*leaves_of(outputs), *(form.value for form in terms.values())]
        return [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)], outputs

    found: list[list[torch.Tensor]] = []
    seen: dict[Places, Any] = {}
    for places in (whole, parts[0], *parts, whole):  # not as in training: what came last there must not come again
        before = side_effects.numbers_of(model, task)
        with torch.no_grad():
            leaves, seen[places] = subject.compute(places, look, training=False)
        found.append(leaves)
    moves = differ(found[0], found[-1], tolerance)
    return {"counts_in_evaluation": counts, "moves_in_evaluation": moves}, {} if counts or moves else seen


def moves_data(task: Task, feed: Feed, by_number: ByNumber, *, steps: int, epochs: int) -> bool:
    """Whether `on_step` or `on_epoch` changes the samples themselves: loader processes have copies that it does not reach. They are
    left as at the start."""
    if not isinstance(feed, DatasetFeed) or (task.on_step is None and task.on_epoch is None):
        return False
    dataset = feed.dataset

    def fetched(step: int, epoch: int) -> list[int]:
        by_number.before_epoch(epoch)
        by_number.before_step(step)
        found: list[int] = []
        for place in range(0, feed.num, max(1, feed.num // _FETCHED)):
            seed_everything(0)
            found.append(digest(dataset[place]))
        return found

    first, late, again = fetched(0, 0), fetched(steps - 1, epochs - 1), fetched(0, 0)
    return first != late and first == again


def _by_calls(subject: Subject, loss: Loss, whole: Places, parts: Sequence[Places]) -> bool:
    """Whether buffers move alike whatever the samples are, and only in training: a power iteration, say."""
    model, ends = subject.model, list[dict[str, torch.Tensor]]()
    before = copies(model)
    for places in parts:
        put_back(model, before)
        loss(places)
        ends.append(copies(model))
    if subject.task.evaluates:
        subject.outputs(whole, training=False)
    kept = copies(model)
    return all(_same(ends[0][name], ends[1][name]) and _same(kept[name], ends[1][name]) for name in before)


def _same(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and one.shape == other.shape and torch.equal(one, other)
