"""Tensors as MPI sees them: one stretch of memory, a count and a type. It says what can be sent and reduced, and sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Names, not values: mpi4py may only be imported once a group is wanted (its import is MPI_Init).
_NUMBERS = {
    torch.float32: "FLOAT", torch.float64: "DOUBLE",
    torch.int8: "INT8_T", torch.int16: "INT16_T", torch.int32: "INT32_T", torch.int64: "INT64_T",
    torch.uint8: "UINT8_T", torch.uint16: "UINT16_T", torch.uint32: "UINT32_T", torch.uint64: "UINT64_T",
    torch.bool: "UINT8_T",
}  # fmt: skip
# MPI has no 16-bit floats: they are summed as float32, which costs a copy and rounds once, at the end.
_WIDENED = (torch.float16, torch.bfloat16)
# Moving needs no arithmetic: an integer as wide as the element. Elements, not bytes, because counts have 32 bits.
_MOVED = {1: "BYTE", 2: "INT16_T", 4: "INT32_T", 8: "INT64_T"}

_OPS = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX"}
_BITS = {"BAND": "BAND", "BOR": "BOR", "BXOR": "BXOR"}
# bool as torch means it (True + True is True); AVG of bools means nothing.
_LOGIC = {
    "SUM": "LOR", "MAX": "LOR", "BOR": "LOR", "PRODUCT": "LAND", "MIN": "LAND", "BAND": "LAND", "BXOR": "LXOR",
}  # fmt: skip

_MOST = 2**31 - 1  # Open MPI 4 and 5 speak MPI 3.1: an int counts the elements of a message


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory without its history; complex numbers as pairs of reals."""
    tensor = tensor.detach()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def sendable(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """`tensors` made plain, or a refusal. For the calling thread: an error in a group's own thread can only end the job."""
    ordinary = [plain(_ordinary(tensor)) for tensor in tensors]
    if len({tensor.dtype for tensor in ordinary}) > 1:
        raise ValueError(f"one MPI message has one dtype, not {', '.join(sorted({str(t.dtype) for t in ordinary}))}")
    num = sum(tensor.numel() for tensor in ordinary)
    if num > _MOST:
        raise ValueError(f"{num:,} elements in one MPI message, which counts to {_MOST:,}: send them in parts")
    return ordinary


def _ordinary(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu":
        raise ValueError(f"the mpi backend moves CPU tensors, and this one is on {tensor.device}: use backend=nccl")
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"the mpi backend moves dense tensors, and this one is {tensor.layout}: make it dense first")
    return tensor


def same_size(tensors: Sequence[torch.Tensor], *, num: int, elements: int, what: str) -> None:
    """MPI checks no sizes: a wrong one is a wrong result or a broken heap."""
    if len(tensors) != num or any(tensor.numel() != elements for tensor in tensors):
        sizes = [tensor.numel() for tensor in tensors]
        raise ValueError(f"{what} needs {num} tensors of {elements} elements, one per rank, and got {sizes}")


class Block:
    """Tensors as one stretch of memory: the tensor's own where it is whole, a copy where it is not."""

    def __init__(self, tensors: Sequence[torch.Tensor], *, wire: torch.dtype | None = None) -> None:
        self.tensors = tensors
        dtype = wire or (tensors[0].dtype if tensors else torch.uint8)
        self.own = len(tensors) == 1 and tensors[0].is_contiguous() and tensors[0].dtype == dtype
        self.flat = tensors[0] if self.own else torch.empty(sum(t.numel() for t in tensors), dtype=dtype)

    def load(self) -> Block:
        """Copy the tensors in. Called when the operations before this one are over: they may still write to these tensors."""
        if not self.own:
            for place, tensor in self._places():
                place.copy_(tensor)
        return self

    def store(self) -> None:
        if not self.own:
            for place, tensor in self._places():
                tensor.copy_(place)

    def apart_from(self, other: Block) -> Block:
        """Copies a block that overlaps `other`: torch allows it (an all-gather whose input is a slice of the output), MPI does not."""
        if self.flat.untyped_storage().data_ptr() == other.flat.untyped_storage().data_ptr():
            self.flat = self.flat.clone(memory_format=torch.contiguous_format)
        return self

    def message(self, num: int | None = None) -> list[Any]:
        """What mpi4py takes: memory, a count where it cannot be told from the size, a type."""
        return [self._memory(), *([] if num is None else [num]), _named(_MOVED[self.flat.element_size()])]

    def numbers(self, num: int | None = None) -> list[Any]:
        """The same for a reduction, which must know what the bytes mean."""
        return [self._memory(), *([] if num is None else [num]), _named(_NUMBERS[self.flat.dtype])]

    def slices(self, counts: Sequence[int]) -> list[Any]:
        starts = [sum(counts[:rank]) for rank in range(len(counts))]
        return [self._memory(), (list(counts), starts), _named(_MOVED[self.flat.element_size()])]

    def _memory(self) -> Any:
        """As numpy, because its array keeps the memory alive: an address does not, and a block may be gone before its message."""
        return self.flat.reshape(-1).view(torch.uint8).numpy()

    def _places(self) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        places = self.flat.split([tensor.numel() for tensor in self.tensors])
        return ((place.view(tensor.shape), tensor) for place, tensor in zip(places, self.tensors, strict=True))


def _named(name: str) -> Any:
    from mpi4py import MPI

    return getattr(MPI, name)


@dataclass(frozen=True, slots=True)
class Reduction:
    """How tensors of one dtype are reduced: MPI's operation, the dtype it works in, and whether the mean is wanted."""

    op: Any
    wire: torch.dtype
    mean: bool

    def block(self, tensors: Sequence[torch.Tensor]) -> Block:
        return Block(tensors, wire=self.wire)

    def finish(self, block: Block, size: int) -> None:
        if self.mean:
            block.flat.div_(size)
        block.store()


def reduction(op: Any, tensors: Sequence[torch.Tensor]) -> Reduction:
    """The reduction torch asks for (None is its default, the sum), or a refusal. For the calling thread, like `sendable`."""
    name = "SUM" if op is None else getattr(op, "op", op).name
    dtype = tensors[0].dtype if tensors else torch.float32
    wire = torch.float32 if dtype in _WIDENED else dtype
    if wire not in _NUMBERS:
        known = ", ".join(str(known).removeprefix("torch.") for known in (*_NUMBERS, *_WIDENED))
        raise ValueError(f"MPI cannot reduce {dtype}; it can reduce {known}")
    table = _LOGIC if dtype == torch.bool else _OPS if dtype.is_floating_point else {**_OPS, **_BITS}
    if name not in table or (name == "AVG" and not dtype.is_floating_point):
        can = ", ".join(known for known in table if known != "AVG" or dtype.is_floating_point)
        raise ValueError(f"the mpi backend cannot reduce {dtype} by {name}; it can by {can}")
    return Reduction(op=_named(table[name]), wire=wire, mean=name == "AVG")
