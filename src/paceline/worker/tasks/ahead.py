"""Batches fetched ahead by a thread: for arrays in mapped files, where an indexed copy waits for the disk."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

_AHEAD = 4  # batches that wait at a time


def is_mapped(array: Any) -> bool:
    """Whether an array, or the array it is a view of, is a mapped file."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


class Ahead:
    """Iterate over it once. torch's indexed copy releases the GIL, so the thread reads while the step computes.

    The thread ends when all batches are fetched, or soon after the iteration was left (a run that stops in the middle of an epoch).
    """

    def __init__(self, tensors: tuple[torch.Tensor, ...], ids: Sequence[np.ndarray[Any, Any]], *, pinned: bool) -> None:
        self._tensors, self._ids, self._pinned = tensors, ids, pinned
        self._ready: queue.Queue[tuple[torch.Tensor, ...] | BaseException] = queue.Queue(maxsize=_AHEAD)
        self._left = threading.Event()

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        threading.Thread(target=self._fetch, name="reads ahead", daemon=True).start()
        try:
            for _ in self._ids:
                item = self._ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._left.set()

    def _fetch(self) -> None:
        try:
            for ids in self._ids:
                self._put(tuple(self._copy(tensor, torch.from_numpy(ids)) for tensor in self._tensors))
                if self._left.is_set():
                    return
        except BaseException as error:  # a file cut short, no memory: raised again where the batch is asked for
            self._put(error)

    def _put(self, item: tuple[torch.Tensor, ...] | BaseException) -> None:
        while not self._left.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=0.5)
                return

    def _copy(self, tensor: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        room = torch.empty((len(ids), *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=self._pinned)
        return torch.index_select(tensor, 0, ids, out=room)
