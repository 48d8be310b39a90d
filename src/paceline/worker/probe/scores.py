"""How scores recombine. What does not is computed over the whole test set; and so is what says nothing here, which is always right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from paceline.base.errors import RunFailed
from paceline.spec.verdict import ScoreKind, Verdict
from paceline.worker.probe.recombine import Seen, adds_up, kind, rounding
from paceline.worker.probe.subject import Places, Subject
from paceline.worker.tasks import tree
from paceline.worker.tasks.forms import Form
from paceline.worker.tasks.returned import score_forms

_NUM_NOISY = 3  # variants of the outputs: a model that was never trained may answer the same to everything
_AMOUNTS = (1.0, -2.0, 4.0)  # by which weights are disturbed where outputs cannot be
_SEED = 2


class Figure(NamedTuple):
    """One score. `said`: its form, where the task gave it one. `value`: a ratio's is its sum. `rounding`: of its number format."""

    said: str | None
    value: torch.Tensor
    count: torch.Tensor | None
    rounding: float


Row = dict[str, Figure]


def _row(subject: Subject, outputs: Any, batch: Any) -> Row:
    with torch.no_grad():
        value = subject.task.score(outputs, batch)
    raw: dict[str, Any] = {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else {"score": value}
    bare = not isinstance(value, Mapping)
    row: Row = {}
    for name, form in score_forms(value, Verdict(), name=subject.task.name).items():
        pair = "bare pair" if bare else "pair"
        said = form.kind if isinstance(raw[name], Form) else pair if form.kind == "ratio" else None
        count = None if form.count is None else _number(form.count)
        row[name] = Figure(said, _number(form.value), count, rounding((form.value, *tree.leaves_of(outputs))))
    return row


def _number(value: Any) -> torch.Tensor:
    return torch.as_tensor(value).detach().double().reshape(1)


def _noisy(outputs: Any, generator: torch.Generator) -> Any:
    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        size = tensor.double().square().mean().sqrt().item() or 1.0
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)
        return tensor + noise * (3 * size)

    return tree.mapped(leaf, outputs, opens=False)


def _cut(outputs: Any, places: Places, num: int) -> Any:
    """The rows of some samples; None where a tensor has no row a sample."""
    leaves = [leaf for leaf in tree.leaves_of(outputs) if isinstance(leaf, torch.Tensor)]
    if not leaves or any(not leaf.dim() or len(leaf) != num for leaf in leaves):
        return None
    return tree.mapped(lambda leaf: leaf[list(places)], outputs, opens=False)


def _sample_shapes(outputs: Any) -> list[list[int]]:
    return [list(leaf.shape[1:]) for leaf in tree.leaves_of(outputs) if isinstance(leaf, torch.Tensor)]


def rows(subject: Subject, whole: Places, parts: Sequence[Places], own: Sequence[Any]) -> list[tuple[Row, list[Row]]]:
    """Scores of a batch and of its parts: of the model's own outputs, and of noise in their form where a score takes it."""
    batches = [subject.samples.batch(places) for places in (whole, *parts)]
    first = _row(subject, own[0], batches[0])
    seen = [(first, _tried(subject, own[1:], batches[1:]) or [])]
    if len({str(_sample_shapes(outputs)) for outputs in own}) > 1:
        # parts are padded to their own longest: nothing of the whole fits
        return seen + _of_other_weights(subject, whole, parts, batches)
    generator = torch.Generator().manual_seed(_SEED)
    for _ in range(_NUM_NOISY):
        noisy = _noisy(own[0], generator)
        pieces = [_cut(noisy, places, len(whole)) for places in parts]
        if any(piece is None for piece in pieces):
            return seen + _of_other_weights(subject, whole, parts, batches)
        row = _tried(subject, [noisy], batches[:1])
        if row is not None:  # a probability, say, does not take noise
            seen.append((row[0], _tried(subject, pieces, batches[1:]) or []))
    return seen


def _of_other_weights(
    subject: Subject, whole: Places, parts: Sequence[Places], batches: Sequence[Any]
) -> list[tuple[Row, list[Row]]]:
    """Where a score is computed inside the model, outputs have no rows to cut: other weights give other outputs."""
    seen: list[tuple[Row, list[Row]]] = []
    for amount in _AMOUNTS:
        subject.disturb(amount)
        own = [subject.outputs(places, training=False) for places in (whole, *parts)]
        row = _tried(subject, [own[0]], batches[:1])
        if row is not None:
            seen.append((row[0], _tried(subject, own[1:], batches[1:]) or []))
    return seen


def _tried(subject: Subject, outputs: Sequence[Any], batches: Sequence[Any]) -> list[Row] | None:
    """None where the task's score fails: an AUC of samples of one class."""
    try:
        return [_row(subject, one, batch) for one, batch in zip(outputs, batches, strict=True)]
    except RunFailed:
        raise
    except Exception:
        return None


def score_kinds(
    subject: Subject, whole: Places, parts: Sequence[Places], tolerance: float, own: Sequence[Any] | None = None
) -> dict[str, ScoreKind]:
    """`own`: the model's outputs for all and for the parts, where somebody has computed them."""
    own = own or [subject.outputs(places, training=False) for places in (whole, *parts)]
    batch = subject.samples.batch(whole)
    first = _row(subject, own[0], batch)
    seen = rows(subject, whole, parts, own)
    _refuse_what_moves(first, _row(subject, own[0], batch), tolerance)
    nums = [len(places) for places in parts]
    return {name: _kind(name, seen, nums, tolerance) for name in seen[0][0]}


def _refuse_what_moves(first: Row, again: Row, tolerance: float) -> None:
    """Between them the score was asked for other samples."""
    for name, (_, value, _, rounded) in first.items():
        if name not in again or float((value - again[name].value).abs()) > max(tolerance, rounded) * float(value.abs()):
            raise RunFailed(
                f"score {name!r} is another number for the same outputs after others were scored: it keeps what it has seen, or draws at "
                "random; compute it from this batch alone (batches are added up here), or from the whole test set with score_all(outputs, "
                "targets)",
                kind="task",
            )


def _kind(name: str, seen: Sequence[tuple[Row, list[Row]]], nums: Sequence[int], tolerance: float) -> ScoreKind:
    said = seen[0][0][name].said
    tolerance = max(tolerance, seen[0][0][name].rounding)
    if not (seen := [row for row in seen if _is_finite(row[0].get(name))]):  # the run says so
        return "whole" if said is None else "mean" if said == "mean" else "total" if said == "total" else "ratio"
    complete = all(parts and all(name in row for row in (whole, *parts)) for whole, parts in seen)
    values = (
        [Seen((whole[name].value,), [(row[name].value,) for row in parts], nums) for whole, parts in seen]
        if complete
        else []
    )
    if said in ("ratio", "pair", "bare pair"):
        counts = (
            [Seen((_count(whole, name),), [(_count(row, name),) for row in parts], nums) for whole, parts in seen]
            if complete
            else []
        )
        fixed = said != "bare pair" or len({float(_count(whole, name)) for whole, _ in seen}) == 1
        if complete and fixed and all(adds_up(one, tolerance, mean=False) for one in (*values, *counts)):
            return "ratio"
        raise RunFailed(_no_pair(name, said), kind="task")
    if said is not None:
        if not complete or not all(adds_up(one, tolerance, mean=said == "mean") for one in values):
            raise RunFailed(_not_as_said(name, said), kind="task")
        return "mean" if said == "mean" else "total"
    found = kind(values, tolerance) if complete else None
    return "mean" if found == "mean" else "total" if found == "total" else "whole"


def _is_finite(figure: Figure | None) -> bool:
    return figure is None or all(
        torch.isfinite(part).all() for part in (figure.value, figure.count) if part is not None
    )


def _count(row: Row, name: str) -> torch.Tensor:
    count = row[name].count
    assert count is not None
    return count


def _no_pair(name: str, said: str) -> str:
    form = "paceline.ratio(sum, count)" if said == "ratio" else "a pair, which is taken as (sum, count)"
    return (
        f"score {name!r} is {form}; but its parts are not a sum and a count over samples: for a batch in two pieces they "
        'do not add up, or the count depends on what the model answers. Two scores are a dict ({"precision": p, '
        '"recall": r}); a ratio whose count depends on the answers is paceline.ratio(sum, count)'
    )


def _not_as_said(name: str, said: str) -> str:
    way = "the sum" if said == "total" else "the mean, each weighed by its samples,"
    return (
        f"score {name!r} is said to be paceline.{said}, but for a batch in two pieces it is not {way} of the "
        "pieces': return the bare number, and it is computed over the whole test set"
    )


def uses_inputs(subject: Subject, whole: Places) -> bool:
    """Whether a score looks at the inputs: it is asked with others in their place."""
    batch = subject.samples.batch(whole)
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        return True
    outputs = subject.outputs(whole, training=False)
    blank = (*tree.mapped(torch.zeros_like, tuple(batch[:-1]), opens=False), batch[-1])
    with_inputs, without = _tried(subject, [outputs], [batch]), _tried(subject, [outputs], [blank])
    return (
        without is None
        or with_inputs is None
        or any(not torch.equal(with_inputs[0][name].value, without[0][name].value) for name in with_inputs[0])
    )
