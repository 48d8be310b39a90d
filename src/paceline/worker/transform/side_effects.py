"""What a model changes besides the values of its tensors: Python's random state, counters in Python, buffers that are replaced.

A graph contains none of it: it would repeat the first step's values for ever, without an error.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import torch

from paceline.base.errors import RunFailed

_PLAIN = (bool, int, float, str)
_MOST = 1000  # numbers of a container that is looked into: a vocabulary is no counter
_FEW, _DEEPEST = 50, 3  # objects of a container, and objects within objects
_LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "paceline", "transformers", "datasets", "pandas", "polars", "lightning"})


def in_python(module: torch.nn.Module, *, host: bool, task: Any = None) -> dict[str, Any]:
    """The state of the random generators, and the plain numbers of modules and of their task (also inside containers
    and objects), by name. `host`: torch's generator on the host too. An exported graph may draw from it (dropout on a
    CPU); a recorded CUDA graph may not. `task`: where the module does not know it."""
    keys: Any = np.random.get_state(legacy=True)
    values: dict[str, Any] = {"Python's random": random.getstate(), "numpy.random": (keys[1].tobytes(), *keys[2:])}
    if host:
        values["torch's random numbers of the host"] = torch.get_rng_state().numpy().tobytes()
    seen: set[int] = set()
    for name, part in module.named_modules():
        _add_numbers(values, vars(part), name, seen)
    for function in _functions(task or getattr(module, "task", None)):
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, torch.nn.Module):
            _add_numbers(values, getattr(owner, "__dict__", {}), "the task", seen)
            _add_numbers(values, vars(type(owner)), "the task", seen)
        if (own := getattr(getattr(function, "__func__", function), "__globals__", None)) is not None:
            _add_numbers(values, own, "the task's file", seen)
    return values


def _functions(task: Any) -> Iterator[Any]:
    """The task's own: not those it took from us."""
    for name in ("forward", "loss", "score", "step"):
        function = getattr(task, name, None)
        if function is not None and not str(getattr(function, "__module__", "")).startswith("paceline."):
            yield function


def _add_numbers(into: dict[str, Any], values: Any, where: str, seen: set[int], depth: int = _DEEPEST) -> None:
    """`seen`: objects that were looked into."""
    for key, value in list(values.items()):
        if str(key).startswith("__") or key == "training":
            continue
        name = ".".join(filter(None, (where, str(key))))
        if (text := _text(value)) is not None:
            into[name] = text
        elif depth and id(value) not in seen and (inside := _inside(value)):
            seen.add(id(value))
            _add_numbers(into, inside, name, seen, depth - 1)


def _text(value: Any) -> Any:
    """A number as it is, a small container of numbers as its text, a generator's state; None for everything else."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict | list | tuple | set) and 0 < len(value) <= _MOST:
        inside = [*value.values()] if isinstance(value, dict) else [*value]
        return repr(value) if all(isinstance(item, _PLAIN) for item in inside) else None
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, random.Random | itertools.count):
        return value.getstate() if isinstance(value, random.Random) else repr(value)
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return repr(value.bit_generator.state if isinstance(value, np.random.Generator) else value.get_state())
    return None


def _inside(value: Any) -> Any:
    """What a container, or an object or class of the user's, holds by name. A library's objects are not looked into."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {str(key): item for key, item in items} if len(value) <= _FEW else {}
    kind = value if isinstance(value, type) else type(value)
    if str(kind.__module__).partition(".")[0] in _LIBRARIES:
        return {}
    return getattr(value, "__dict__", {})


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
