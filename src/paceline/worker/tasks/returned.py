"""What a task's loss or score returned, read: each number with its meaning. A bare number means what the probe found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.spec.verdict import Verdict
from paceline.worker.tasks.forms import LOSS, Form, Sums, loss_of

# Keys of the record's `train` and `test`.
_RESERVED = frozenset({LOSS, "evaluated", "seen", "of", "num"})
_FORMS = "paceline.mean(x), paceline.total(x), paceline.ratio(sum, count)"


def loss_terms(value: Any, verdict: Verdict, *, name: str) -> dict[str, Form]:
    """By name; a loss of one part is called `loss`."""
    if isinstance(value, Mapping):
        named: dict[Any, Any] = {**value}
        if not named:
            raise RunFailed(f"{name}: loss returned an empty dict; it must name at least one term", kind="task")
        for key in named:
            if str(key) in _RESERVED:
                raise RunFailed(
                    f"{name}: a term of the loss may not be called {key!r}: the record uses that name", kind="task"
                )
        return {
            str(key): _term(item, verdict.terms.get(str(key), "mean"), f"{name}: loss term {key!r}")
            for key, item in named.items()
        }
    return {LOSS: _term(value, verdict.loss, f"{name}: loss(outputs, batch)")}


def step_figures(value: Any, verdict: Verdict, num: int, *, name: str) -> Sums:
    """Of what a step of the task's own returned: its losses, for the record. Numbers will do, nothing is computed from
    them."""
    if not isinstance(value, Mapping) and not _is_number(value):
        raise RunFailed(
            f"{name}: step returned {_words(value)}; it must return its loss, or a dict of named losses, for the record",
            kind="task",
        )
    named: dict[Any, Any] = {**value} if isinstance(value, Mapping) else {LOSS: value}
    numbers = {key: _detached(item) for key, item in named.items()}
    terms = loss_terms(numbers if isinstance(value, Mapping) else numbers[LOSS], verdict, name=name)
    return loss_of(terms, num=num, num_global=num).figures


def _detached(item: Any) -> Any:
    if isinstance(item, Form):
        return item
    return item.detach() if isinstance(item, torch.Tensor) else torch.tensor(item, dtype=torch.float64)


def _term(value: Any, kind: str, what: str) -> Form:
    if isinstance(value, Form):
        if not _is_number(value.value) or (value.kind == "ratio" and not _is_number(value.count)):
            raise RunFailed(
                f"{what} returned a paceline.{value.kind} of {_words(value.value)}, which is no number", kind="task"
            )
        return Form(value.kind, _scalar(value.value), _scalar(value.count))
    if isinstance(value, tuple | list) and len(value) == 2:
        return _pair(value, what)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise RunFailed(
            f"{what} returned {_words(value)}; it must return one number, {_FORMS}, or a dict of named terms",
            kind="task",
        )
    return Form("total" if kind == "total" else "mean", value.reshape(()))


def _pair(value: Any, what: str) -> Form:
    """(sum, count), and nothing that merely looks like it."""
    first, second = value
    if not _is_number(first) or not _is_number(second):
        raise RunFailed(
            f"{what} returned a pair of {_words(first)} and {_words(second)}; a pair is (sum, count)", kind="task"
        )
    if isinstance(second, torch.Tensor) and second.requires_grad:
        raise RunFailed(
            f"{what} returned a pair whose second part has a gradient, so it is no count; a loss of several parts is a dict of "
            'named terms ({"reconstruction": a, "kl": b}), whose sum is minimised',
            kind="task",
        )
    return Form("ratio", _scalar(first), _scalar(second))


def score_forms(value: Any, verdict: Verdict, *, name: str) -> dict[str, Form]:
    """By name; a score without one is called `score`."""
    named: dict[Any, Any] = {**value} if isinstance(value, Mapping) else {"score": value}
    forms: dict[str, Form] = {}
    for key, item in named.items():
        if key in _RESERVED:
            raise RunFailed(f"{name}: a score may not be called {key!r}: the record uses that name", kind="task")
        forms[str(key)] = _score(item, verdict.scores.get(str(key), verdict.score_kind), f"{name}: score {key!r}")
    return forms


def bare(value: Any) -> list[str]:
    """The names of the scores that are plain numbers: nothing says how they add up."""
    named: dict[Any, Any] = {**value} if isinstance(value, Mapping) else {"score": value}
    return [str(name) for name, item in named.items() if not isinstance(item, Form | tuple | list)]


def _score(item: Any, kind: str, what: str) -> Form:
    if isinstance(item, Form):
        return Form(item.kind, _scalar(item.value), _scalar(item.count))
    if isinstance(item, tuple | list) and len(item) == 2 and all(map(_is_number, item)):
        return Form("ratio", _scalar(item[0]), _scalar(item[1]))
    if _is_number(item):
        return Form("total" if kind == "total" else "mean", _scalar(item))
    if isinstance(item, torch.SymFloat | torch.SymInt):
        raise RunFailed(
            f"{what} makes a Python number of a tensor (item), which no graph of the step can hold: return the tensor, or use "
            "graph_of=model or graph=eager",
            kind="task",
        )
    raise RunFailed(
        f"{what} is {_words(item)}; a score is one number, or one of {_FORMS}", kind="task",
    )  # fmt: skip


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) or (hasattr(value, "dtype") and getattr(value, "size", 0) == 1)


def _scalar(value: Any) -> Any:
    """A NumPy number as a plain one; a tensor without dimensions."""
    if isinstance(value, torch.Tensor):
        return value.reshape(())
    return value.item() if hasattr(value, "dtype") else value


def _words(value: Any) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
