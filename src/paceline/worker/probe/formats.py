"""The number format in which the probe computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch

from paceline.worker.probe.effort import Effort, in_single
from paceline.worker.probe.samples import Samples
from paceline.worker.probe.subject import Subject
from paceline.worker.tasks.task import Task
from paceline.worker.transform import precision

_HOST = torch.device("cpu")


@contextlib.contextmanager
def default_format(dtype: torch.dtype) -> Generator[None]:
    """What forward makes without saying a type is of this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def into(dtype: torch.dtype) -> Callable[[Any], Any]:
    return lambda batch: precision.cast(batch, to=dtype, device=_HOST)


def in_single_precision(task: Task, samples: Samples, model: torch.nn.Module) -> Effort | None:
    subject = Subject(task, model.to(torch.float32), samples.cast(into(torch.float32)))
    try:
        return in_single(samples.num, lambda places: subject.outputs(places, training=True))
    except Exception:
        return None  # what is wrong, if anything is, shows in the probe itself
