"""What a number that a task returns means: a mean over samples, a sum over them, or a sum over a count of its own. In parts of a batch
each of them is added up in another way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from paceline.base.errors import RunFailed

Sums = dict[str, tuple[Any, Any]]  # name -> (sum, count)
Kind = Literal["mean", "total", "ratio"]


@dataclass(frozen=True, slots=True)
class Form:
    """A number with its meaning. `count` is there for a ratio only; without one `value` is the number itself."""

    kind: Kind
    value: Any
    count: Any = None

    @property
    def number(self) -> Any:
        """What a plain loop would have."""
        return self.value if self.kind != "ratio" else self.value / self.count

    def figure(self, num: int) -> tuple[Any, Any]:
        """(sum, count) for the record. A total is given per sample, so that it can be compared."""
        if self.kind == "ratio":
            return self.value, self.count
        return (self.value * num if self.kind == "mean" else self.value), num


def _one_number(x: Any, reduce: Literal["mean", "sum"]) -> Any:
    if isinstance(x, torch.Tensor) and x.dim():
        return getattr(x, reduce)()
    return x


def mean(x: Any) -> Form:
    """The mean over the samples of the batch: a number, or a tensor whose mean it is.

    >>> mean(torch.tensor([1.0, 3.0])).number
    tensor(2.)
    """
    return Form("mean", _one_number(x, "mean"))


def total(x: Any) -> Form:
    """The sum over the samples of the batch: a number, or a tensor whose sum it is. The gradient is that of the sum.

    >>> total(torch.tensor([1.0, 3.0])).number
    tensor(4.)
    """
    return Form("total", _one_number(x, "sum"))


def ratio(sum: Any, count: Any) -> Form:
    """A sum, divided by a count that the batch decides: its tokens, or the sum of its weights. Sums and counts of all
    parts are added up before one is divided by the other.

    >>> ratio(torch.tensor([1.0, 3.0]), torch.tensor([True, True])).number
    tensor(2.)
    """
    return Form("ratio", _one_number(sum, "sum"), _one_number(count, "sum"))


class Loss(NamedTuple):
    """`total / count` is what is minimised, after both were added up over the parts of a batch. `figures`: for the
    record; the first is the loss, the others its terms."""

    total: torch.Tensor
    count: Any
    figures: Sums


LOSS, TERM = "loss", "loss."  # the figure of a term is called loss.NAME


def loss_of(terms: Mapping[str, Form], *, num: int, num_global: int) -> Loss:
    """The loss of this part of a batch: `num` of `num_global` samples. A single term has the name `loss`.

    A total is multiplied by the samples of the whole batch, because the count it will be divided by is theirs.
    """
    if len(terms) == 1:
        ((name, term),) = terms.items()
        figure = term.figure(num)
        figures = {LOSS: figure, **({} if name == LOSS else {f"{TERM}{name}": figure})}
        if term.kind == "ratio":
            count = term.count if isinstance(term.count, torch.Tensor) else float(term.count)
            return Loss(term.value, count, figures)
        return Loss(term.value * (num if term.kind == "mean" else num_global), float(num), figures)
    figures = {f"{TERM}{name}": term.figure(num) for name, term in terms.items()}
    if any(term.kind == "ratio" for term in terms.values()):
        if num != num_global:
            raise RunFailed(MIXED, kind="task")
        number = added(term.number for term in terms.values())
        return Loss(number * num, float(num), {LOSS: (number * num, num), **figures})
    sums = [term.value * (num if term.kind == "mean" else num_global) for term in terms.values()]
    return Loss(added(sums), float(num), {LOSS: (added(figure[0] for figure in figures.values()), num), **figures})


MIXED = (
    "loss: a term with a count of its own (paceline.ratio) beside others cannot be added up over the parts of a batch, because each has "
    "another divisor: use on=1x1 accumulate=1, or give all terms one divisor"
)


def added(numbers: Any) -> Any:
    first, *rest = numbers
    for number in rest:
        first = first + number
    return first
