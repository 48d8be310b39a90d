"""Copies a batch out of tensors in memory into fixed tensors: rows by their ids, all tensors with one call
(`gather.cpp`)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.kernels.build import library


class _Tensor(ctypes.Structure):
    """The struct `Tensor` of gather.cpp."""

    _fields_ = (("from", ctypes.c_void_p), ("to", ctypes.c_void_p), ("row_bytes", ctypes.c_int64))


@functools.cache
def kernel() -> Any:
    """None where it cannot be compiled or cached: then torch copies the same rows."""
    try:
        function = library("gather").gather
    except RunFailed:
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    function.restype = None
    return function


class Gather:
    """`rows`: room for `num` samples. Where torch may use several threads, or nothing can be compiled, torch copies."""

    def __init__(self, data: Sequence[torch.Tensor], num: int) -> None:
        self._data = data
        self.rows = tuple(tensor.new_empty((num, *tensor.shape[1:])) for tensor in data)
        self._num = num
        self._call = kernel() if torch.get_num_threads() == 1 and all(map(_plain, data)) else None
        self._tensors = (_Tensor * len(data))(
            *(
                (tensor.data_ptr(), row.data_ptr(), row.nbytes // num)
                for tensor, row in zip(data, self.rows, strict=True)
            )
        )
        self._at = ctypes.addressof(self._tensors)

    @property
    def is_ours(self) -> bool:
        return self._call is not None

    def __call__(self, ids: torch.Tensor, start: int) -> None:
        """The samples with the ids from `start` on, which are known to be some of the data's."""
        if self._call is not None:
            self._call(self._at, len(self._data), ids.data_ptr() + start * 8, self._num)
            return
        wanted = ids[start : start + self._num]
        with torch.no_grad():
            for tensor, row in zip(self._data, self.rows, strict=True):
                torch.index_select(tensor, 0, wanted, out=row)


def _plain(tensor: torch.Tensor) -> bool:
    usual = type(tensor) is torch.Tensor and tensor.layout == torch.strided and tensor.device.type == "cpu"
    return usual and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
