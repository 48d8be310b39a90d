"""What forward or loss leaves changed: a batch is computed, then others, then the first again. What only counts calls shows in numbers of
Python or in buffers, and what is kept of samples shows in the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from paceline.spec.verdict import Verdict
from paceline.worker.probe.losses import Look, thinned
from paceline.worker.probe.samples import GENERATORS, host_states
from paceline.worker.probe.subject import Places, Subject, copies, differ, put_back
from paceline.worker.tasks import tree
from paceline.worker.tasks.returned import loss_terms
from paceline.worker.tasks.task import no_loss
from paceline.worker.tasks.tree import leaves_of
from paceline.worker.transform import side_effects

NO_GRAPH = "does not require grad"  # what torch says of a gradient that is taken where none is kept
_BEYOND = 3  # times the weights there are
Loss = Callable[[Places], Look]


class Looks(NamedTuple):
    """At all samples, at parts of them, and at all again."""

    first: Look
    parts: Mapping[Places, Look]
    again: Look


def in_training(
    subject: Subject, loss: Loss, whole: Places, parts: Sequence[Places], tolerance: float, *, moved: Sequence[str] = ()
) -> tuple[dict[str, Any], Looks]:
    """For the verdict; and the looks it was found by. `moved`: weights that are known to be changed by forward."""
    subject.puts_back = False
    model = subject.model
    python, buffers, weights = side_effects.numbers_of(model, subject.task), copies(model), _weights(model)
    first = loss(whole)
    later = side_effects.numbers_of(model, subject.task)
    numbers = [name for name in {**python, **later} if python.get(name) != later.get(name)]
    later_weights = _weights(model)
    moved_weights = [name for name in weights if name in moved or weights[name] != later_weights.get(name)]
    moved_buffers = [name for name, buffer in model.named_buffers() if not _same(buffers.get(name), buffer)]
    moves = [*moved_buffers, *moved_weights]
    at_once = loss(parts[0])  # and at once again: what is kept of a batch may be used for one of the same size only
    looks = Looks(first, {places: loss(places) for places in parts}, loss(whole))
    pairs = ((first.terms, looks.again.terms), (at_once.terms, looks.parts[parts[0]].terms))
    computes = any(
        differ(before[name].value, after[name].value, tolerance)
        for before, after in pairs
        if before.keys() == after.keys()
        for name in before
    )
    unseen = ["what the loss computes"] if computes and not numbers and not moves else []
    by_calls = bool(moves) and not numbers and _by_calls(subject, loss, whole, parts, weights=bool(moved_weights))
    subject.puts_back = True
    seeds = _seeds(subject, parts[-1]) if subject.moved_generators else []
    changes = {
        "changes": (*numbers, *moves, *unseen, *seeds),
        "changes_by": "calls" if by_calls and not seeds else "data",
        "changes_python": bool(numbers or unseen or seeds),
        "seeds": bool(seeds),
        "moves_weights": bool(moved_weights),
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
    counts = differentiates = False

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
        try:
            with torch.set_grad_enabled(differentiates):
                leaves, outputs = subject.compute(places, look, training=False)
        except RuntimeError as error:
            if differentiates or NO_GRAPH not in str(error):
                raise
            differentiates = True
            with torch.enable_grad():
                leaves, outputs = subject.compute(places, look, training=False)
        seen[places] = tree.mapped(torch.Tensor.detach, outputs, opens=False)
        found.append(leaves)
    moves = differ(found[0], found[-1], tolerance) or differ(found[1], found[2], tolerance)
    flags = {"counts_in_evaluation": counts, "moves_in_evaluation": moves, "differentiates": differentiates}
    return flags, {} if counts or moves else seen


def _by_calls(subject: Subject, loss: Loss, whole: Places, parts: Sequence[Places], *, weights: bool) -> bool:
    """Whether buffers, and `weights`, move alike whatever the samples are, and only in training: a power iteration, say."""
    model, ends = subject.model, list[dict[str, torch.Tensor]]()
    before = copies(model, weights=weights)
    if weights:  # those that forward holds within bounds are there by now: others show what it does
        held = dict(model.named_parameters())
        before = {name: _BEYOND * tensor if name in held else tensor for name, tensor in before.items()}
    for places in parts:
        put_back(model, before)
        loss(places)
        ends.append(copies(model, weights=weights))
    if subject.task.evaluates:
        subject.outputs(whole, training=False)
    kept = copies(model, weights=weights)
    return all(_same(ends[0][name], ends[-1][name]) and _same(kept[name], ends[-1][name]) for name in before)


def _seeds(subject: Subject, places: Places) -> list[str]:
    """The generators that forward seeds itself: they are in the same state after it, whatever they were in before."""
    if subject.task.step is not None:
        return []
    ends: list[tuple[bytes, ...]] = []
    for seed in (1, 2):
        subject.outputs(places, training=True, seed=seed)
        ends.append(host_states())
    return [f"the seed of {name}" for name, one, other in zip(GENERATORS, *ends, strict=True) if one == other]


def _weights(model: torch.nn.Module) -> dict[str, int]:
    """How often each parameter was changed in place. What goes around autograd (`weight.data`) is not counted."""
    return {name: weight._version for name, weight in model.named_parameters()}


def weight_numbers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Some of each parameter's."""
    return {name: thinned(weight.detach()).to(torch.float64, copy=True) for name, weight in model.named_parameters()}


def moved_numbers(before: dict[str, torch.Tensor], model: torch.nn.Module) -> list[str]:
    """The parameters whose numbers are others now, but for their format."""
    after = weight_numbers(model)
    return [
        name
        for name in before
        if name in after and not torch.allclose(before[name], after[name], 1e-5, 1e-7, equal_nan=True)
    ]


def _same(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and one.shape == other.shape and torch.equal(one, other)
