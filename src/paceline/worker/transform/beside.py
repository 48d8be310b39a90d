"""What a model changes beside its tensors' values: random numbers drawn in Python, numbers counted there, buffers put in place of
others. A graph holds none of it: it would repeat the first for ever, without a word.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator
from typing import Any

import numpy as np
import torch

from paceline.base.errors import RunFailed


def in_python(module: torch.nn.Module, *, host: bool) -> dict[str, Any]:
    """Random generators and plain numbers of modules, by name. `host`: torch's generator on the host too, which an exported graph
    may draw from (dropout on a CPU), and a recording of what a GPU does may not."""
    keys: Any = np.random.get_state(legacy=True)
    found: dict[str, Any] = {"Python's random": random.getstate(), "numpy.random": (keys[1].tobytes(), *keys[2:])}
    if host:
        found["torch's random numbers of the host"] = torch.get_rng_state().numpy().tobytes()
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            if isinstance(value, bool | int | float):
                found[".".join(filter(None, (name, key)))] = value
    return found


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


@contextlib.contextmanager
def in_place(module: torch.nn.Module, asked: str) -> Generator[None]:
    """Around an eager step. The old buffers are held meanwhile: a freed one's address might be given to its follower."""
    before = dict(module.named_buffers())
    places = {name: buffer.data_ptr() for name, buffer in before.items()}
    yield
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
