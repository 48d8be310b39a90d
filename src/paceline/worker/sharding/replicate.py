"""Data parallelism by replication: the model on every rank, gradients summed in one message a step, divided by the true count.

Our own instead of torch's DDP, because DDP cannot do two things. A rank without a sample in a short batch takes part
with zeros. And the divisor is the number of samples (or tokens) that were really seen, so that N ranks compute the
gradient of one process.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeGuard

import torch

from paceline.base.errors import RunFailed
from paceline.worker.optim.sparse import sparse_parameters
from paceline.worker.sharding.sharding import Plain
from paceline.worker.sharding.tables import cut_tables
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.world.collectives import all_gather, all_reduce_, broadcast, broadcast_json
from paceline.worker.world.join import World


def same_start(model: torch.nn.Module, world: World) -> None:
    """Copies rank 0's weights and buffers to every rank, because a model that seeds itself could start differently on
    each. Tables that are cut over ranks are left out: each rank has drawn its own rows."""
    if world.size == 1:
        return
    cut = cut_tables(model)
    mine = {name: tensor for name, tensor in model.state_dict().items() if name not in cut}
    _same_shapes({name: [list(tensor.shape), str(tensor.dtype)] for name, tensor in mine.items()}, world)
    for tensor in mine.values():
        tensor.copy_(broadcast(tensor.detach().clone().contiguous(), world))


def _same_shapes(mine: dict[str, Any], world: World) -> None:
    """Checked before anything is sent: given tensors of different sizes, a backend may read garbage, hang or end the
    process."""
    first = broadcast_json(mine, world)
    assert isinstance(first, dict)
    for name in {**first, **mine}:
        if first.get(name) != mine.get(name):
            raise RunFailed(
                f"rank {world.rank} has built another model than rank 0: {name} is {_words(mine.get(name))}, and there "
                f"{_words(first.get(name))}; a model must not depend on its rank",
                kind="task",
            )


def _words(shape_and_dtype: Any) -> str:
    return f"{shape_and_dtype[1]} of shape {shape_and_dtype[0]}" if shape_and_dtype else "missing"


class Replicated(Plain):
    """Turns gradients of loss sums into gradients of the mean, with one message over all ranks; a single rank sends
    none. `apart`: parameters that are not replicated, for classes that build on this one."""

    def __init__(self, task_module: TaskModule, world: World, *, apart: Collection[torch.nn.Parameter] = ()) -> None:
        super().__init__(task_module, world)
        others, rows = {id(parameter) for parameter in apart}, {id(p) for p in sparse_parameters(task_module.model)}
        self._parameters = [parameter for parameter in self._parameters if id(parameter) not in others]
        self._sparse = [parameter for parameter in self._parameters if id(parameter) in rows]
        self._dense = [parameter for parameter in self._parameters if id(parameter) not in rows]
        self._message: _Message | None = None  # alone none is needed

    @property
    def dense(self) -> list[torch.nn.Parameter]:
        """In the order of the message."""
        return self._dense

    def reduce(self, count: Any) -> None:
        if self.world.size > 1:
            self.exchange(count)
            return
        for gradient in self.gradients():
            gradient.div_(count)

    def exchange(self, count: Any) -> float:
        """One message, and two more where there are sparse gradients; the divisor, which it brings, comes back.

        A parameter no rank used keeps no gradient, as on one process: weight decay must not touch it. So each parameter's "was
        used" flag travels in the same message as the gradients and the count, and so does every rank's number of sparse rows.
        """
        if self._message is None:
            self._message = _Message(self._dense, len(self._sparse), self.world)
        message, gradients = self._message, [parameter.grad for parameter in self._dense]
        self._as_declared(gradients)
        message.fill(gradients, count)
        if self._sparse:
            rows = [self._num_rows(parameter) for parameter in self._sparse]
            message.fill_sparse([parameter.grad is not None for parameter in self._sparse], rows)
        all_reduce_(message.flat, self.world)
        used, sizes, total = message.read()
        message.flat.div_(total)
        if all(used[: len(self._dense)]) and _all(gradients):
            torch._foreach_copy_(gradients, message.pieces)  # pyright: ignore[reportPrivateImportUsage]
        else:
            for parameter, piece, flag in zip(self._dense, message.pieces, used, strict=False):
                parameter.grad = piece.to(parameter.dtype, copy=True) if flag else None
        if self._sparse:
            self._rows_of_all(sizes, total)
            for parameter, flag in zip(self._sparse, used[len(self._dense) :], strict=True):
                parameter.grad = parameter.grad if flag else None
        return total

    @staticmethod
    def _num_rows(parameter: torch.nn.Parameter) -> int:
        """Each row once: what is sent is a rank's own sum."""
        if parameter.grad is None:
            return 0
        parameter.grad = parameter.grad.coalesce()
        return parameter.grad._values().shape[0]

    def _rows_of_all(self, sizes: list[list[int]], total: float) -> None:
        """Sparse gradients over all ranks: the rows and values of every rank are gathered, and each rank adds them in
        the same order. `sizes[i][r]`: how many rows of table i rank r has."""
        world, everyone = self.world, range(self.world.size)
        wide = torch.promote_types(self._sparse[0].dtype, torch.float32)
        most = max(sum(of_table[rank] for of_table in sizes) for rank in everyone)
        widths = [parameter.shape[1] for parameter in self._sparse]
        largest = max(
            sum(of_table[rank] * width for of_table, width in zip(sizes, widths, strict=True)) for rank in everyone
        )
        ids = torch.zeros(most, dtype=torch.int64, device=world.device)
        values = torch.zeros(largest, dtype=wide, device=world.device)
        at = to = 0
        for parameter in self._sparse:
            if parameter.grad is not None:
                rows, numbers = parameter.grad._indices()[0], parameter.grad._values().reshape(-1)
                ids[at : at + len(rows)], values[to : to + len(numbers)] = rows, numbers.to(wide)
                at, to = at + len(rows), to + len(numbers)
        all_ids, all_values = all_gather(ids, world), all_gather(values, world)
        world.count("all_gather", ids.nbytes)
        world.count("all_gather", values.nbytes)
        starts, places = [0] * world.size, [0] * world.size
        for parameter, width, num in zip(self._sparse, widths, sizes, strict=True):
            rows, numbers = [], []
            for rank in everyone:
                rows.append(all_ids[rank][starts[rank] : starts[rank] + num[rank]])
                numbers.append(all_values[rank][places[rank] : places[rank] + num[rank] * width].view(-1, width))
                starts[rank], places[rank] = starts[rank] + num[rank], places[rank] + num[rank] * width
            summed = torch.sparse_coo_tensor(
                torch.cat(rows)[None], torch.cat(numbers), parameter.shape, check_invariants=False
            )
            summed = summed.coalesce()
            summed._values().div_(total)
            parameter.grad = summed.to(parameter.dtype)

    def _as_declared(self, gradients: list[torch.Tensor | None]) -> None:
        """Every gradient must be sparse or dense as its layer declares, or ranks would misread each other's
        messages."""
        odd = next((g for g in gradients if g is not None and g.is_sparse), None)
        if odd is None:
            odd = next((p.grad for p in self._sparse if p.grad is not None and not p.grad.is_sparse), None)
        if odd is not None:
            layout = "sparse" if odd.is_sparse else "dense"
            raise RunFailed(
                f"a parameter of shape {list(odd.shape)} got a {layout} gradient, and nn.Embedding(sparse=True) is what "
                "says beforehand which are sparse: use that, and use its weight in no other way",
                kind="mismatch",
            )


def _all(gradients: list[torch.Tensor | None]) -> TypeGuard[list[torch.Tensor]]:
    return all(gradient is not None for gradient in gradients)


class _Message:
    """What a rank sends in a step, in one buffer that is reused: dense gradients, flags of the parameters that were
    used, numbers of sparse rows, and the count. The layout is made once: 40 small tensors allocated in every step took
    240 us."""

    def __init__(self, dense: list[torch.nn.Parameter], num_sparse: int, world: World) -> None:
        # Counts do not fit into a half format, and sums in one would lose the small ranks: there the message is in fp32.
        dtype = torch.float32
        for parameter in dense:
            dtype = torch.promote_types(dtype, parameter.dtype)
        self._world, self._num_sparse, self._num = world, num_sparse, len(dense)
        sizes = [parameter.numel() for parameter in dense]
        words = len(dense) + num_sparse + num_sparse * world.size + 1
        self.flat = torch.zeros(sum(sizes) + words, dtype=dtype, device=world.device)
        *pieces, self._tail = self.flat.split([*sizes, words])
        self.pieces = [piece.view_as(parameter) for piece, parameter in zip(pieces, dense, strict=True)]
        self._all_used = torch.zeros_like(self._tail)
        self._all_used[: self._num] = 1.0
        self._used, self._table = (
            self._tail[: self._num],
            self._tail[self._num + num_sparse : -1].view(num_sparse, world.size),
        )
        self._sparse_used, self._count = self._tail[self._num : self._num + num_sparse], self._tail[-1]

    def fill(self, gradients: list[torch.Tensor | None], count: Any) -> None:
        self._tail.copy_(self._all_used)
        if _all(gradients):
            torch._foreach_copy_(self.pieces, gradients)  # pyright: ignore[reportPrivateImportUsage]
        else:
            for piece, gradient in zip(self.pieces, gradients, strict=True):
                piece.zero_() if gradient is None else piece.copy_(gradient)
            self._used.copy_(torch.tensor([float(gradient is not None) for gradient in gradients]))
        self._count.copy_(count) if isinstance(count, torch.Tensor) else self._count.fill_(count)

    def fill_sparse(self, used: list[bool], rows: list[int]) -> None:
        self._sparse_used.copy_(torch.tensor(used))
        self._table[:, self._world.rank].copy_(torch.tensor(rows, dtype=self.flat.dtype))

    def read(self) -> tuple[list[float], list[list[int]], float]:
        """After the sum: how many ranks used each parameter, how many rows of each table each rank has, and the count of all."""
        tail = self._tail.tolist()
        used = self._num + self._num_sparse
        table = [int(size) for size in tail[used:-1]]
        num = self._world.size
        return tail[:used], [table[i * num : (i + 1) * num] for i in range(self._num_sparse)], tail[-1]
