"""Tensors inside containers of any kind: listed, taken out, and put back into containers of the same kind.

Batches and outputs are the user's own: a Hugging Face output is a dict with attributes, a batch may be a UserDict or a dataclass. What
goes through here must come out as what it was, because a loss asks for `outputs.loss`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree

from paceline.base.errors import RunFailed

Change = Callable[[Any], Any]
Build = Callable[[Sequence[Any]], Any]

_PLAIN = (str, bytes, int, float, complex, type(None), type, ModuleType, FunctionType, MethodType, torch.nn.Module)
_DEEPEST = 3  # objects inside objects; a cache of a model has layers, which have tensors


def mapped(change: Change, value: Any, other: Change | None = None, *, opens: bool = True) -> Any:
    """`value` with `change(tensor)` in place of each tensor, and `other(leaf)` in place of each other leaf.

    `opens`: an object of a kind nobody knows is looked into as well. Not where tensors of other sizes are put in: its other attributes
    may speak of them.
    """
    return _mapped(change, other, value, _DEEPEST if opens else 0)


def _mapped(change: Change, other: Change | None, value: Any, depth: int) -> Any:
    # the usual kinds first, and in words that torch's compiler can follow: a batch may be cast inside its graph
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) is dict:
        return {name: _mapped(change, other, item, depth) for name, item in value.items()}
    if type(value) is tuple or type(value) is list:
        return type(value)([_mapped(change, other, item, depth) for item in value])
    if isinstance(value, tuple) and hasattr(value, "_fields") and not isinstance(value, PackedSequence):
        return type(value)(*[_mapped(change, other, item, depth) for item in value])
    apart = _apart(value, depth)
    if apart is None:
        return value if other is None else other(value)
    return apart.build([_mapped(change, other, item, apart.depth) for item in apart.inside])


@dataclass(frozen=True, slots=True)
class Form:
    """How a value was put together. Without `build` it is one leaf."""

    build: Build | None = None
    parts: tuple[Form, ...] = ()

    def of(self, leaves: Iterator[Any]) -> Any:
        """A value of this form from other leaves, as many as `flat` gave."""
        return next(leaves) if self.build is None else self.build([part.of(leaves) for part in self.parts])


def flat(value: Any, *, opens: bool = False) -> tuple[list[Any], Form]:
    """All leaves in a fixed order, tensors and others, and the form they were in."""
    leaves: list[Any] = []
    return leaves, _flat(value, leaves, _DEEPEST if opens else 0)


def _flat(value: Any, leaves: list[Any], depth: int) -> Form:
    apart = None if isinstance(value, torch.Tensor) else _apart(value, depth)
    if apart is None:
        leaves.append(value)
        return Form()
    return Form(apart.build, tuple(_flat(item, leaves, apart.depth) for item in apart.inside))


def leaves_of(value: Any) -> list[Any]:
    """The leaves of `flat`."""
    return list(_leaves(value, 0))


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a value of any nesting, in a fixed order; those in objects of unknown kinds too."""
    return (leaf for leaf in _leaves(value, _DEEPEST) if isinstance(leaf, torch.Tensor))


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    apart = None if isinstance(value, torch.Tensor) else _apart(value, depth)
    if apart is None:
        yield value
        return
    for item in apart.inside:
        yield from _leaves(item, apart.depth)


@dataclass(frozen=True, slots=True)
class _Apart:
    """What is inside a container, and how one of the same kind is made of other things. `depth`: how many objects of unknown
    kinds may still be looked into, one inside the other."""

    inside: list[Any]
    build: Build
    depth: int


def _apart(value: Any, depth: int) -> _Apart | None:
    """None for a leaf."""
    kind = type(value)
    if isinstance(value, _PLAIN):
        return None
    if kind is dict:
        names = list(value)
        return _Apart(list(value.values()), lambda inside: dict(zip(names, inside, strict=True)), depth)
    if kind is tuple or kind is list:
        return _Apart(list(value), kind, depth)
    if isinstance(value, PackedSequence):  # torch wants its sizes on the host, wherever the rest is
        return _Apart(list(value), lambda inside: kind(inside[0], inside[1].cpu(), *inside[2:]), depth)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _Apart(list(value), lambda inside: kind(*inside), depth)
    if (node := _pytree.SUPPORTED_NODES.get(kind)) is not None:  # the kind says itself how it is taken apart
        inside, how = node.flatten_fn(value)
        return _same_if_same(value, list(inside), lambda given: node.unflatten_fn(given, how), depth)
    if isinstance(value, tuple):
        return _same_if_same(value, list(value), kind, depth)
    if isinstance(value, list):
        return _same_if_same(value, list(value), lambda inside: _filled(value, inside), depth)
    if isinstance(value, dict):
        return _named(value, depth)
    return _object(value, depth)


def _same_if_same(value: Any, inside: list[Any], build: Build, depth: int) -> _Apart:
    """Where nothing inside is another thing the value itself is kept: what is not made anew cannot be made wrong."""

    def built(given: Sequence[Any]) -> Any:
        new, old = list(_leaves([*given], depth)), list(_leaves(inside, depth))
        same = len(new) == len(old) and all(one is other for one, other in zip(new, old, strict=True))
        return value if same else build(given)

    return _Apart(inside, built, depth)


def _filled(value: list[Any], inside: Sequence[Any]) -> Any:
    other = copy.copy(value)
    other[:] = inside
    return other


def _named(value: dict[Any, Any], depth: int) -> _Apart:
    """A dict of a kind of its own: its items, and its attributes where they are something else."""
    names = list(value)
    own = [name for name in getattr(value, "__dict__", {}) if name not in value]

    def build(inside: Sequence[Any]) -> Any:
        other = copy.copy(value)
        for name, item in zip(names, inside, strict=False):
            other[name] = item
        return _with(other, own, inside[len(names) :])

    return _same_if_same(value, [*value.values(), *(value.__dict__[name] for name in own)], build, depth)


def _object(value: Any, depth: int) -> _Apart | None:
    """A dataclass or a mapping is all of its attributes. Of another object, where it may be looked into, those that hold tensors."""
    known = isinstance(value, UserDict | Mapping) or dataclasses.is_dataclass(value)
    if not known and depth == 0:
        return None
    given = _attributes(value)
    below = depth if known else depth - 1
    holding = [
        name for name, item in given.items() if any(isinstance(leaf, torch.Tensor) for leaf in _leaves(item, below))
    ]
    if not holding:
        return None
    names = list(given) if known else holding
    inside = [given[name] for name in names]

    def build(inside: Sequence[Any]) -> Any:
        if not known and (why := _copied_its_own_way(value)):
            raise RunFailed(
                f"a {type(value).__name__} holds tensors ({', '.join(holding[:3])}) that need another number format or device, and it "
                f"cannot be made anew with them ({why}): return its tensors in a dict, a tuple or a dataclass instead",
                kind="task",
            )
        return _with(copy.copy(value), names, inside)

    return _same_if_same(value, inside, build, below)


def _with(value: Any, names: Sequence[str], items: Sequence[Any]) -> Any:
    for name, item in zip(names, items, strict=True):
        object.__setattr__(value, name, item)  # a frozen dataclass refuses its own
    return value


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
    return {name: getattr(value, name) for name in slots if hasattr(value, name)} | {**getattr(value, "__dict__", {})}


def _slots(kind: type) -> list[str]:
    names = kind.__dict__.get("__slots__", ())
    return [name for name in ([names] if isinstance(names, str) else names) if not name.startswith("__")]


def _copied_its_own_way(value: Any) -> str | None:
    """How a class changes what a copy is; the copy's attributes need not be all there is to it then."""
    for name in ("__copy__", "__reduce__", "__reduce_ex__", "__getstate__"):
        if getattr(type(value), name, None) is not getattr(object, name, None):
            return f"it has a {name} of its own"
    return None
