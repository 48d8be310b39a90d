"""How a step that is one graph gets its samples, where the data lies on its device: one way for a GPU, one for a CPU.

A graph refers to tensors, not to values. On a GPU (`GraphBatches`) the epoch's ids (and keys for augmentation) are
copied into fixed tensors once an epoch, and the position is a tensor that the graph itself advances: a step is one call
without arguments. On a CPU (`HostBatches`) a kernel of ours copies the rows into the graph's input tensors, which is
quicker than torch's graph; and ranks do it before they wait for each other.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.kernels.gather import Gather
from paceline.worker.step.input import SamplePosition
from paceline.worker.tasks.augmented import augmented
from paceline.worker.tasks.feed import TensorFeed, in_form
from paceline.worker.tasks.task import Task


class GraphBatches:
    """The graph fetches its rows. `feed`: its tensors are on the device. `tensors`: what the graph works on."""

    def __init__(self, task: Task, feed: TensorFeed, position: SamplePosition) -> None:
        data = feed.tensors
        device = data[0].device
        self._task, self._form, self.num = task, feed.form, position.num
        self._of: torch.Tensor | None = None
        self._next = -1
        self.tensors: dict[str, Any] = {
            "data": list(data),
            # of all samples there are: its size must not depend on how long a run is, or each would compile its own graph
            "ids": position.ids.new_zeros(len(data[0])),
            "at": torch.zeros((), dtype=torch.int64, device=device),
            "steps": torch.arange(position.num, device=device),
            **({} if position.keys is None else {"keys": position.keys.new_zeros(len(data[0]))}),
        }

    def follow(self, position: SamplePosition) -> None:
        """Before each step of the graph; in the middle of an epoch it does nothing, unless another step came between."""
        if position.ids is not self._of:
            self.tensors["ids"][: len(position.ids)].copy_(position.ids)
            if position.keys is not None:
                self.tensors["keys"][: len(position.keys)].copy_(position.keys)
            self._of = position.ids
        if position.start != self._next:
            self.tensors["at"].fill_(position.start)
        self._next = position.start + self.num

    def forget(self) -> None:
        """Nothing that was copied or counted ahead holds any more."""
        self._of, self._next = None, -1

    def batch(self, tensors: dict[str, Any]) -> Any:
        """Inside the graph, on its own tensors."""
        where = tensors["at"] + tensors["steps"]
        ids = tensors["ids"].index_select(0, where)
        batch = in_form(tuple(tensor.index_select(0, ids) for tensor in tensors["data"]), self._form)
        if "keys" in tensors:
            batch = augmented(self._task, batch, tensors["keys"].index_select(0, where))
        tensors["at"].add_(self.num)
        return batch


class HostBatches:
    """The rows are copied into the graph's inputs, which it changes where the task augments. `tensors`: what it works
    on."""

    def __init__(self, task: Task, feed: TensorFeed, position: SamplePosition) -> None:
        self._task, self._form, self.num = task, feed.form, position.num
        self._gather = Gather(feed.tensors, position.num)
        self.tensors: dict[str, Any] = {
            "rows": list(self._gather.rows),
            **({} if position.keys is None else {"keys": position.keys.new_zeros(position.num)}),
        }
        self._ids, self._keys, self._start = position.ids, position.keys, position.start
        self._is_ahead = False  # the rows are those from `start` on, and nobody has used them

    def follow(self, position: SamplePosition) -> None:
        """Before each step of the graph; it does nothing where the rows were fetched ahead."""
        if not self._is_ahead or position.ids is not self._ids or position.start != self._start:
            self._ids, self._keys = position.ids, position.keys
            self._fetch(position.start)
        self._is_ahead = False

    def fetch_ahead(self) -> None:
        """Called when the rows have been used: replaces them by those of the epoch's next full batch, if there is
        one."""
        start = self._start + self.num
        if start + self.num <= len(self._ids):
            self._fetch(start)
            self._is_ahead = True

    def forget(self) -> None:
        """Rows that were fetched ahead are not the next ones any more."""
        self._is_ahead = False

    def _fetch(self, start: int) -> None:
        self._gather(self._ids, start)
        if self._keys is not None:
            self.tensors["keys"].copy_(self._keys[start : start + self.num])
        self._start = start

    def batch(self, tensors: dict[str, Any]) -> Any:
        """Inside the graph, on its own tensors."""
        batch = in_form(tuple(tensors["rows"]), self._form)
        return augmented(self._task, batch, tensors["keys"]) if "keys" in tensors else batch
