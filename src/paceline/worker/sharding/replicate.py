"""Data parallelism by replication: one model on every rank, gradients summed in one message a step and divided by the true count.

Our own instead of torch's DDP because of two truths DDP cannot hold: a rank without a sample in a short batch takes part
with zeros, and the divisor is the number of samples (or tokens) that were really seen, so N ranks compute the gradient of one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.sharding.sharding import Plain
from paceline.worker.sharding.tables import cut_tables
from paceline.worker.transform.sparse import sparse_parameters
from paceline.worker.world.collectives import gather, spread, sum_
from paceline.worker.world.join import World


def same_start(model: torch.nn.Module, world: World) -> None:
    """Rank 0's weights and buffers everywhere: a model that seeds itself oddly must not start as N models.

    A table that is cut is nobody's copy: each rank has drawn rows that nobody else holds.
    """
    cut = cut_tables(model)
    for name, tensor in model.state_dict().items():
        if world.size > 1 and name not in cut:
            tensor.copy_(spread(tensor.detach().clone().contiguous(), world))


class Replicated(Plain):
    """Makes the mean's gradients out of the sums': over all ranks with one message, alone without. `apart`: parameters that are not
    replicated, for whoever builds on this."""

    def __init__(self, model: torch.nn.Module, world: World, *, apart: Collection[torch.nn.Parameter] = ()) -> None:
        super().__init__(model, world)
        others, rows = {id(parameter) for parameter in apart}, {id(p) for p in sparse_parameters(model)}
        self._parameters = [parameter for parameter in self._parameters if id(parameter) not in others]
        self._sparse = [parameter for parameter in self._parameters if id(parameter) in rows]
        self._dense = [parameter for parameter in self._parameters if id(parameter) not in rows]

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
        self._as_declared()
        device = self.world.device
        # Counts do not fit into a half format, and sums in one would lose the small ranks: there the message is in fp32.
        dtype = torch.promote_types(self._parameters[0].dtype if self._parameters else torch.float32, torch.float32)
        flags = [float(parameter.grad is not None) for parameter in (*self._dense, *self._sparse)]
        rows = [self._num_rows(parameter) for parameter in self._sparse]
        table = torch.zeros(len(rows), self.world.size)
        table[:, self.world.rank] = torch.tensor(rows, dtype=torch.float32)
        pieces = [
            (parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)).reshape(-1)
            for parameter in self._dense
        ]
        words = torch.cat([torch.tensor(flags, dtype=dtype), table.reshape(-1).to(dtype)]).to(device)
        seen = torch.as_tensor(count, device=device).to(dtype).reshape(1)
        message = sum_(torch.cat([*pieces, words, seen]), self.world)
        tail = message[len(message) - len(words) - 1 :].tolist()
        message.div_(tail[-1])
        start = 0
        for parameter, flag in zip(self._dense, tail, strict=False):
            stop = start + parameter.numel()
            parameter.grad = message[start:stop].view_as(parameter).to(parameter.dtype) if flag else None
            start = stop
        if self._sparse:
            num, sizes = self.world.size, [int(size) for size in tail[len(flags) : -1]]
            self._rows_of_all([sizes[i * num : (i + 1) * num] for i in range(len(rows))], tail[-1])
            for parameter, flag in zip(self._sparse, tail[len(self._dense) :], strict=False):
                parameter.grad = parameter.grad if flag else None
        return tail[-1]

    @staticmethod
    def _num_rows(parameter: torch.nn.Parameter) -> int:
        """Each row once: what is sent is a rank's own sum."""
        if parameter.grad is None:
            return 0
        parameter.grad = parameter.grad.coalesce()
        return parameter.grad._values().shape[0]

    def _rows_of_all(self, sizes: list[list[int]], total: float) -> None:
        """Sparse gradients over all ranks: every rank's rows and numbers, side by side, then summed by everybody alike.

        `sizes[i][r]`: how many rows of table i rank r has.
        """
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
                rows, found = parameter.grad._indices()[0], parameter.grad._values().reshape(-1)
                ids[at : at + len(rows)], values[to : to + len(found)] = rows, found.to(wide)
                at, to = at + len(rows), to + len(found)
        all_ids, all_values = gather(ids, world), gather(values, world)
        world.sent.add(ids.nbytes)
        world.sent.add(values.nbytes)
        starts, places = [0] * world.size, [0] * world.size
        for parameter, width, num in zip(self._sparse, widths, sizes, strict=True):
            rows, found = [], []
            for rank in everyone:
                rows.append(all_ids[rank][starts[rank] : starts[rank] + num[rank]])
                found.append(all_values[rank][places[rank] : places[rank] + num[rank] * width].view(-1, width))
                starts[rank], places[rank] = starts[rank] + num[rank], places[rank] + num[rank] * width
            summed = torch.sparse_coo_tensor(
                torch.cat(rows)[None], torch.cat(found), parameter.shape, check_invariants=False
            )
            summed = summed.coalesce()
            summed._values().div_(total)
            parameter.grad = summed.to(parameter.dtype)

    def _as_declared(self) -> None:
        """Ranks that take a gradient for different things would read each other's messages wrongly."""
        for parameters, sparse in ((self._dense, False), (self._sparse, True)):
            for parameter in parameters:
                if parameter.grad is not None and parameter.grad.is_sparse != sparse:
                    found = "sparse" if parameter.grad.is_sparse else "dense"
                    raise RunFailed(
                        f"a parameter of shape {list(parameter.shape)} got a {found} gradient, and nn.Embedding(sparse=True) is what "
                        "says beforehand which are sparse: use that, and use its weight in no other way",
                        kind="mismatch",
                    )
