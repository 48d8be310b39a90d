"""How a step that is one graph fetches its own samples: it knows where it stands in the epoch, and moves on by itself.

A graph knows tensors, not values: the epoch's ids (and keys for augmentation) are copied into tensors that stay where they are, once
an epoch, and the position is a tensor that the graph itself moves. So a step is one call, to which nothing is handed.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.samples import augmented
from paceline.worker.step import Place
from paceline.worker.tasks.task import Task


class Course:
    """`data`: the feed's tensors, on the device."""

    def __init__(self, task: Task, data: tuple[torch.Tensor, ...], place: Place) -> None:
        device = data[0].device
        self._task, self.num = task, place.num
        self._of: torch.Tensor | None = None
        self._next = -1
        self.tensors: dict[str, Any] = {
            "data": list(data),
            # of all samples there are: its size must not depend on how long a run is, or each would compile its own graph
            "ids": place.ids.new_zeros(len(data[0])),
            "at": torch.zeros((), dtype=torch.int64, device=device),
            "steps": torch.arange(place.num, device=device),
            **({} if place.keys is None else {"keys": place.keys.new_zeros(len(data[0]))}),
        }

    def follow(self, place: Place) -> None:
        """Before each step of the graph; in the middle of an epoch it does nothing, unless another step came between."""
        if place.ids is not self._of:
            self.tensors["ids"][: len(place.ids)].copy_(place.ids)
            if place.keys is not None:
                self.tensors["keys"][: len(place.keys)].copy_(place.keys)
            self._of = place.ids
        if place.start != self._next:
            self.tensors["at"].fill_(place.start)
        self._next = place.start + self.num

    def batch(self, tensors: dict[str, Any]) -> Any:
        """Inside the graph, on its own tensors."""
        where = tensors["at"] + tensors["steps"]
        ids = tensors["ids"].index_select(0, where)
        batch = tuple(tensor.index_select(0, ids) for tensor in tensors["data"])
        if "keys" in tensors:
            batch = augmented(self._task, batch, tensors["keys"].index_select(0, where))
        tensors["at"].add_(self.num)
        return batch
