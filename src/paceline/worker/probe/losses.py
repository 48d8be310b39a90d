"""How a loss recombines: by its value and by its gradient, for each of its terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from paceline.base.errors import RunFailed
from paceline.spec.verdict import LossKind, Verdict
from paceline.worker.probe.bends import bends
from paceline.worker.probe.criteria import Criteria
from paceline.worker.probe.gradients import hooked
from paceline.worker.probe.outputs import cut, has_number, reached
from paceline.worker.probe.recombine import Seen, Vectors, adds_up, kind, rounding
from paceline.worker.probe.subject import Places, Subject
from paceline.worker.tasks import tree
from paceline.worker.tasks.forms import LOSS, Form
from paceline.worker.tasks.returned import loss_terms

SAID = ("mean", "total", "ratio")  # forms that a task can give its loss by name
UNUSED = "not have been used in the graph"  # what torch says of a gradient by what a loss does not depend on
_MOST_NUMBERS = 4096  # of a parameter's gradient: every so many-th, where it has more


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a loss of some samples. `said`: the form the task gave it; None for a bare number, `pair` for (sum, count). `bends`: it
    may be a mean here and none elsewhere."""

    said: str | None
    value: Vectors  # a ratio's is its sum
    count: Vectors | None
    bends: bool = False
    rounding: float = 0.0


Terms = dict[str, Term]


@dataclass(frozen=True, slots=True)
class Look:
    """A loss that was computed once, of some samples. `reached`: the leaves that get a gradient from it."""

    terms: Terms
    outputs: Any
    reached: list[torch.Tensor]


def look(subject: Subject, places: Places, criteria: Criteria, *, lean: int | None = None) -> Look:
    """The loss of these samples, with gradients of the parameters. `lean`: with those of the outputs, of so many samples
    in all, where the loss depends on nothing else."""
    parameters = subject.parameters

    def what(outputs: Any, batch: Any) -> Look:
        apart = None if lean is None else cut(outputs, len(places))
        try:
            found = _forms(subject, criteria, outputs if apart is None else apart.outputs, batch)
        except RuntimeError as error:
            if apart is None or UNUSED not in str(error):
                raise
            apart, found = None, _forms(subject, criteria, outputs, batch)  # its gradients go through the model
        leaves = found.reached()
        held = {id(parameter) for parameter in parameters}
        if apart is not None and any(id(leaf) in held for leaf in leaves):  # it looks at the model besides its outputs
            apart = None
            found = _forms(subject, criteria, outputs, batch)
            leaves = found.reached()

        def gradient(value: torch.Tensor) -> Vectors:
            if not value.requires_grad:
                return ()
            if apart is None or lean is None:
                return (_gradient(value, parameters),)
            return (apart.gradient(value, places, lean),)

        given = outputs if apart is None else apart.outputs
        leaves_given = [leaf for leaf in tree.leaves_of(given) if isinstance(leaf, torch.Tensor)]
        terms = {name: _term(found.raw[name], form, gradient, leaves_given) for name, form in found.forms.items()}
        seen = tree.mapped(torch.Tensor.detach, outputs, opens=False)
        return Look(terms, seen, leaves if apart is None else [*leaves, *apart.behind(leaves)])

    found: Look = subject.compute(places, what, training=True)
    if has_number(found.outputs) and not criteria.followed:  # no other forward need be listened to
        criteria.followed = True
        with criteria:
            subject.outputs(places, training=True)
    return found


class _Found(NamedTuple):
    """Each term in its form, and as the task gave it."""

    forms: dict[str, Form]
    raw: dict[str, Any]

    def reached(self) -> list[torch.Tensor]:
        return list(reached([torch.as_tensor(form.value) for form in self.forms.values()]))


def _forms(subject: Subject, criteria: Criteria, outputs: Any, batch: Any) -> _Found:
    with criteria:
        value = subject.task.loss(outputs, batch)
    forms = loss_terms(value, Verdict(), name=subject.task.name)
    raw = {**value} if isinstance(value, Mapping) else {LOSS: value}
    return _Found(forms, {name: raw.get(name, value) for name in forms})


def _term(raw: Any, form: Form, gradient: Callable[[torch.Tensor], Vectors], outputs: list[torch.Tensor]) -> Term:
    said = form.kind if isinstance(raw, Form) else "pair" if form.kind == "ratio" else None
    count = (_number(form.count),) if form.kind == "ratio" else None
    value = torch.as_tensor(form.value)
    vectors = (_number(value), *gradient(value))
    return Term(said, vectors, count, bends=bends(value, outputs), rounding=rounding((value, *outputs)))


def _number(value: Any) -> torch.Tensor:
    return torch.as_tensor(value).detach().double().reshape(1)


def _gradient(value: torch.Tensor, parameters: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    gradients = torch.autograd.grad(value, list(parameters), retain_graph=True, allow_unused=True)
    pieces = [
        (torch.zeros_like(parameter) if gradient is None else hooked(parameter, gradient))
        for gradient, parameter in zip(gradients, parameters, strict=True)
    ]
    return torch.cat([thinned(piece.to_dense().detach().double().reshape(-1)) for piece in pieces])


def thinned(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    return flat[:: -(-len(flat) // _MOST_NUMBERS) or 1]


def alike(whole: Terms, parts: Sequence[Terms]) -> bool:
    """Whether figures of the whole and of its parts can be compared number by number."""
    return all(
        [vector.shape for vector in part[name].value] == [vector.shape for vector in term.value]
        for part in parts
        for name, term in whole.items()
    )


def term_kind(
    name: str, seen: Sequence[tuple[Term, Sequence[Term]]], nums: Sequence[int], tolerance: float
) -> LossKind:
    """`seen`: for each of several weights the term of the whole batch, and those of its parts."""
    said = seen[0][0].said
    tolerance = max(tolerance, seen[0][0].rounding)
    # what is no number on disturbed weights (a logarithm) says nothing; what is none at all is said by the run
    seen = [one for one in seen if all(map(_is_finite, (one[0], *one[1])))] or seen
    values = [Seen(whole.value, [part.value for part in parts], nums) for whole, parts in seen]
    if said in ("ratio", "pair"):
        counts = [Seen(whole.count or (), [part.count or () for part in parts], nums) for whole, parts in seen]
        if all(adds_up(one, tolerance, mean=False) for one in (*values, *counts)):
            return "ratio"
        raise RunFailed(_no_ratio(name, said), kind="task")
    if said is not None:
        if not all(adds_up(one, tolerance, mean=said == "mean") for one in values):
            raise RunFailed(not_as_said(name, said), kind="task")
        return "mean" if said == "mean" else "total"
    found = None if any(whole.bends for whole, _ in seen) else kind(values, tolerance)
    return "mean" if found == "mean" else "total" if found == "total" else "coupled"


def _is_finite(term: Term) -> bool:
    return bool(torch.isfinite(term.value[0]).all())


def refuse_without_gradient(terms: Terms, parts: Sequence[Terms], tolerance: float) -> None:
    """A loss that nothing is learned from; and a term that only makes the loss another number."""
    without = [name for name, term in terms.items() if len(term.value) == 1]
    if len(without) == len(terms):
        raise RunFailed(
            f"{_what(without[0])} gives a number without a gradient, so nothing would be learned: it was detached (item, detach, no_grad), "
            "or does not depend on the model",
            kind="task",
        )
    for name in without:
        values = [part[name].value[0] for part in (terms, *parts) if name in part]
        if any(float((one - values[0]).abs()) > tolerance * float(values[0].abs()) for one in values):
            raise RunFailed(
                f"the loss term {name!r} has no gradient: the sum of the terms is minimised, so it would change the loss and no weight; "
                "return it from score(outputs, batch)",
                kind="task",
            )


def refuse_sums_among_terms(seen: Sequence[Terms], tolerance: float) -> None:
    """A term that is made of others, as people log a total beside its parts: their sum would count the parts twice."""
    names = list(seen[0])
    if len(names) < 2 or any(term.count is not None for terms in seen for term in terms.values()):
        return
    width = max(sum(map(torch.numel, term.value)) for terms in seen for term in terms.values())
    rows = torch.stack([torch.cat([_padded(terms[name], width) for terms in seen]) for name in names])
    if rows.shape[1] < 2 * len(names) or not bool(torch.isfinite(rows).all()):
        return
    for index, name in enumerate(names):
        others = [place for place in range(len(names)) if place != index and bool(rows[place].any())]
        size = float(rows[index].norm())
        if not others or not size:
            continue
        factors = torch.linalg.lstsq(rows[others].T, rows[index, :, None], driver="gelsd").solution[:, 0]
        made_of = [
            names[place]
            for place, factor in zip(others, factors, strict=True)
            if float(factor.abs() * rows[place].norm()) > 1e-6 * size
        ]
        left = float((rows[others].T @ factors - rows[index]).norm())
        if left <= tolerance * size and (len(made_of) > 1 or float((factors.abs().max() - 1).abs()) <= tolerance):
            raise RunFailed(
                f"the loss term {name!r} is made of the others ({', '.join(made_of)}), and the sum of all terms is minimised, so these "
                f"would count twice: leave {name!r} out",
                kind="task",
            )


def _padded(term: Term, width: int) -> torch.Tensor:
    numbers = torch.cat([vector.reshape(-1) for vector in term.value])
    return torch.nn.functional.pad(numbers, (0, width - len(numbers)))


def _what(name: str) -> str:
    return "loss(outputs, batch)" if name == LOSS else f"the loss term {name!r}"


def _no_ratio(name: str, said: str) -> str:
    form = "a pair" if said == "pair" else "paceline.ratio(sum, count)"
    return (
        f"{_what(name)} gives {form} whose parts do not add up: for a batch in two pieces, the sum and the count of the pieces are not "
        'those of the batch. A loss of several parts is a dict of named terms ({"reconstruction": a, "kl": b}), whose sum is minimised; a '
        "loss that couples the samples of a batch is one number"
    )


def not_as_said(name: str, said: str) -> str:
    way = "the sum" if said == "total" else "the mean, each weighed by its samples,"
    return (
        f"{_what(name)} is said to be paceline.{said}, but for a batch in two pieces it is not {way} of the "
        "pieces': return the bare number, and Paceline finds out how it recombines"
    )


def ignores(criteria: Criteria, data: Sequence[torch.Tensor]) -> bool:
    """Whether a criterion's mean leaves targets out that the data has."""
    integers = [tensor for tensor in data if not tensor.is_floating_point() and not tensor.is_complex()]
    return any(bool((tensor == value).any()) for value in criteria.ignored for tensor in integers)
