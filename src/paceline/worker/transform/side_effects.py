"""What a model changes besides the values of its tensors: Python's random state, counters in Python, buffers that are replaced.

A graph contains none of it: it would repeat the first step's values for ever, without an error.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from paceline.base.errors import RunFailed

_PLAIN = (bool, int, float, str)
_MOST = 1000  # numbers of a container that is looked into: a vocabulary is no counter
_FEW, _DEEPEST = 50, 3  # objects of a container, and objects within objects
_TORCHS = frozenset(vars(torch.nn.Module()))  # `training`, hooks, and the tables of parameters, buffers and children
_LIBRARIES = frozenset(
    {
        *sys.stdlib_module_names,
        "torch",
        "numpy",
        "paceline",
        "transformers",
        "datasets",
        "pandas",
        "polars",
        "lightning",
    }
)


def in_python(module: torch.nn.Module, *, host: bool) -> dict[str, Any]:
    """What Python holds beside the tensors: the state of the random generators, and `numbers_of`. `host`: torch's
    generator on the host too. An exported graph may draw from it (dropout on a CPU); a recorded CUDA graph may not."""
    keys: Any = np.random.get_state(legacy=True)
    values: dict[str, Any] = {"Python's random": random.getstate(), "numpy.random": (keys[1].tobytes(), *keys[2:])}
    if host:
        values["torch's random numbers of the host"] = torch.get_rng_state().numpy().tobytes()
    return values | numbers_of(module, getattr(module, "task", None))


def numbers_of(module: torch.nn.Module, task: Any) -> dict[str, Any]:
    """The plain numbers of modules and of their task, also inside containers and objects, by name."""
    return {place.name: _text(place.value) for place in _places(module, task)}


def numbers_in(value: Any) -> dict[str, Any]:
    """The plain numbers that an object holds, by name."""
    return {place.name: _text(place.value) for place in _places(None, None, value)}


class Kept:
    """Those numbers as they stand now, to be put back after what must not move them: an evaluation, a look at a Dataset."""

    def __init__(self, module: torch.nn.Module | None, task: Any = None, *others: Any) -> None:
        self._of = module, task, *others
        every = list(_everything(*self._of))
        self._names = {place.name for place in every}
        self._were = [(place, _state(place.value)) for place in every if _text(place.value) is not None]

    def put_back(self) -> None:
        for place in list(_places(*self._of)):
            if place.name not in self._names:  # it was made since
                place.remove()
        for place, state in self._were:
            _set_state(place.value, state)
            place.put()


class _Place(NamedTuple):
    """Where a value is: under `key` of a container, or in an attribute of an object or class."""

    name: str
    holder: Any
    key: Any
    value: Any

    def put(self) -> None:
        if isinstance(self.holder, dict | list):
            self.holder[self.key] = self.value
        elif getattr(self.holder, self.key, None) is not self.value:
            setattr(self.holder, self.key, self.value)

    def remove(self) -> None:
        if isinstance(self.holder, dict | list):
            del self.holder[self.key]
        else:
            delattr(self.holder, self.key)


def _places(module: torch.nn.Module | None, task: Any, *others: Any) -> Iterator[_Place]:
    return (place for place in _everything(module, task, *others) if _text(place.value) is not None)


def _everything(module: torch.nn.Module | None, task: Any, *others: Any) -> Iterator[_Place]:
    """Numbers and everything else: what holds a tensor now may hold a number later."""
    seen: set[int] = set()
    for name, part in module.named_modules() if module is not None else ():
        yield from _inside(part, name, seen)
    for other in others:
        yield from _inside(other, type(other).__name__, seen)
    for function in _functions(task):
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, torch.nn.Module):
            yield from _inside(owner, "the task", seen)
            yield from _inside(type(owner), "the task's class", seen)  # an instance's own value may hide it
        if (own := getattr(getattr(function, "__func__", function), "__globals__", None)) is not None:
            yield from _inside(own, "the task's file", seen)


def _functions(task: Any) -> Iterator[Any]:
    """The task's own: not those it took from us."""
    for name in ("forward", "loss", "score", "step"):
        function = getattr(task, name, None)
        if function is not None and not str(getattr(function, "__module__", "")).startswith("paceline."):
            yield function


def _inside(holder: Any, where: str, seen: set[int], depth: int = _DEEPEST) -> Iterator[_Place]:
    """`seen`: what was looked into. A library's objects are not looked into, but for the modules of a model."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    for key, value in list(_items(holder)):
        if str(key).startswith("__") or (key in _TORCHS and isinstance(holder, torch.nn.Module)):
            continue
        name = ".".join(filter(None, (where, str(key))))
        # a tuple cannot be put back in part: what holds it is given it whole
        if not isinstance(holder, tuple):
            yield _Place(name, holder, key, value)
        if depth and _text(value) is None and _is_open(value):
            yield from _inside(value, name, seen, depth - 1)


def _items(holder: Any) -> Any:
    if isinstance(holder, dict):
        return holder.items()
    return enumerate(holder) if isinstance(holder, list | tuple) else getattr(holder, "__dict__", {}).items()


def _is_open(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return len(value) <= _FEW
    kind = value if isinstance(value, type) else type(value)
    return str(kind.__module__).partition(".")[0] not in _LIBRARIES


def _text(value: Any) -> Any:
    """A number as it is, a small container of numbers as its text, a generator's state; None for everything else."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict | list | tuple | set):
        inside = [*value.values()] if isinstance(value, dict) else [*value]
        return repr(value) if len(value) <= _MOST and all(isinstance(item, _PLAIN) for item in inside) else None
    if isinstance(value, itertools.count):
        return repr(value)
    state = _state(value)
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else state if state is None else repr(state)


def _state(value: Any) -> Any:
    """What can be put back into the same object; None where there is nothing of the kind."""
    if isinstance(value, dict | list | set):
        return value.copy()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    return value.get_state() if isinstance(value, np.random.RandomState) else None


def _set_state(value: Any, state: Any) -> None:
    if isinstance(value, list):
        value[:] = state
    elif isinstance(value, dict | set):
        value.clear()
        value.update(state)
    elif isinstance(value, torch.Generator | np.random.RandomState):
        value.set_state(state)
    elif isinstance(value, random.Random):
        value.setstate(state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state


def _kept_tensors(module: torch.nn.Module) -> dict[str, tuple[torch.Tensor, int]]:
    """Tensors of modules that are neither parameters nor buffers, and how often each was changed in place."""
    return {
        ".".join(filter(None, (name, key))): (value, value._version)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }


def refuse_changes(before: dict[str, Any], after: dict[str, Any], asked: str) -> None:
    names = {**before, **after}
    changed = [
        name for name in names if before.get(name) is not after.get(name) and before.get(name) != after.get(name)
    ]
    if changed:
        raise RunFailed(
            f"{asked}: the model draws random numbers or counts in Python ({', '.join(changed[:3])}), and a graph would repeat the "
            "first: use graph=eager",
            kind="mismatch",
        )


@contextlib.contextmanager
def steady(module: torch.nn.Module, asked: str, *, host: bool = True) -> Generator[None]:
    """Around work in Python that a graph will stand for. `host`: as above."""
    before = in_python(module, host=host)
    yield
    refuse_changes(before, in_python(module, host=host), asked)


def _same(one: tuple[torch.Tensor, int] | None, other: tuple[torch.Tensor, int] | None) -> bool:
    return one is not None and other is not None and one[0] is other[0] and one[1] == other[1]


@contextlib.contextmanager
def in_place(module: torch.nn.Module, asked: str) -> Generator[None]:
    """Around an eager step. The old buffers are held meanwhile, because the address of a freed one might be given to
    its replacement."""
    before = dict(module.named_buffers())
    places = {name: buffer.data_ptr() for name, buffer in before.items()}
    kept = _kept_tensors(module)
    yield
    later = _kept_tensors(module)
    if strays := [name for name in {**kept, **later} if not _same(kept.get(name), later.get(name))]:
        raise RunFailed(
            f"{asked}: forward keeps a tensor in an attribute that is no buffer ({', '.join(strays[:3])}), which a graph of the step would "
            "lose: make it a buffer (register_buffer) and change it in place, or use graph=eager",
            kind="mismatch",
        )
    after = dict(module.named_buffers())
    moved = [
        name
        for name in {**before, **after}
        if before.get(name) is not after.get(name) or places[name] != after[name].data_ptr()
    ]
    if moved:
        raise RunFailed(
            f"{asked}: forward puts another tensor in place of a buffer ({', '.join(moved[:3])}), which a graph of the step would lose: "
            "change it in place (copy_, mul_), or use graph=eager",
            kind="mismatch",
        )
