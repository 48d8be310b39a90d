"""A process group that times and counts the collectives which torch's own sharding (DTensor) runs inside the model.

torch accepts a process group of ours, so nothing of torch is patched. Every collective is passed on to the world's
group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.world.collectives import together
from paceline.worker.world.join import World
from paceline.worker.world.ring import Kind


class TimedProcessGroup(dist.ProcessGroup):
    """Method names and signatures are torch's, because its C++ side looks methods up by name. torch 2.13 has
    `all_gather_single` where earlier versions have `_allgather_base`; both are defined here. DTensor calls the
    coalesced forms, with one tensor."""

    def __init__(self, world: World, watch: Stopwatch, *, name: str) -> None:
        super().__init__(world.rank, world.size)  # pyright: ignore[reportCallIssue]  (the stub lacks this one)
        self._world, self._watch, self._name = world, watch, name
        self._inner: Any = dist.group.WORLD
        self.num = 0  # collectives passed on

    def getRank(self) -> int:
        return self._world.rank

    def getSize(self) -> int:
        return self._world.size

    def getBackendName(self) -> str:
        return "timed"

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def _get_backend(self, device: torch.device) -> Any:
        """torch asks a group's backend what it supports; this object is both the group and its backend."""
        return self

    def shutdown(self) -> None:
        self._inner = None  # the world is left by who joined it

    def _timed(self, kind: Kind, inputs: Sequence[Tensor], call: Callable[[], Any], *, kept: int = 0) -> Any:
        """Run one collective and wait for it here, so that the wait is timed as communication. torch would wait at the
        first use of the result, inside the next operator. On a GPU only the stream waits, not the host. `kept`: bytes of
        `inputs` that stay on this rank."""
        with self._watch.aside(), together():
            work = call()
            work.wait()
        self._world.count(kind, sum(tensor.nbytes for tensor in inputs) - kept)
        self.num += 1
        return work

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        return self._timed("all_reduce", tensors, lambda: self._inner.allreduce(tensors, opts))

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        return self._timed("all_reduce", tensors, lambda: self._inner.allreduce_coalesced(tensors, opts))

    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        return self._timed("broadcast", tensors, lambda: self._inner.broadcast(tensors, opts))

    def allgather(self, outputs: Any, inputs: Sequence[Tensor], opts: Any = None) -> Any:
        return self._timed("all_gather", inputs, lambda: self._inner.allgather(outputs, inputs, opts))

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        call = self._either("all_gather_single", "_allgather_base")
        return self._timed("all_gather", [input], lambda: call(output, input, opts))

    def all_gather_single_coalesced(self, outputs: Any, inputs: Sequence[Tensor], opts: Any = None) -> Any:
        call = self._either("all_gather_single_coalesced", "allgather_into_tensor_coalesced")
        return self._timed("all_gather", inputs, lambda: call(outputs, inputs, opts))

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        call = self._either("reduce_scatter_single", "_reduce_scatter_base")
        return self._timed("reduce_scatter", [input], lambda: call(output, input, opts))

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Sequence[Tensor], opts: Any = None) -> Any:
        call = self._either("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced")
        return self._timed("reduce_scatter", inputs, lambda: call(outputs, inputs, opts))

    def scatter(self, outputs: Sequence[Tensor], inputs: Any, opts: Any = None) -> Any:
        pieces = [part for parts in inputs for part in parts]
        return self._timed("scatter", pieces, lambda: self._inner.scatter(outputs, inputs, opts))

    def all_to_all_single(self, output: Tensor, input: Tensor, outs: Any, ins: Any, opts: Any = None) -> Any:
        call = self._either("all_to_all_single", "alltoall_base")
        kept = input.nbytes // self._world.size  # without a word of sizes all pieces are equal
        if ins:
            kept = input[: ins[self._world.rank]].nbytes
        return self._timed("all_to_all", [input], lambda: call(output, input, outs, ins, opts), kept=kept)

    def barrier(self, opts: Any = None) -> Any:
        return self._timed("barrier", (), lambda: self._inner.barrier(opts))

    def _either(self, new: str, old: str) -> Callable[..., Any]:
        return getattr(self._inner, new, None) or getattr(self._inner, old)

    _allgather_base: Any = all_gather_single
    allgather_into_tensor_coalesced: Any = all_gather_single_coalesced
    _reduce_scatter_base: Any = reduce_scatter_single
    reduce_scatter_tensor_coalesced: Any = reduce_scatter_single_coalesced
    alltoall_base: Any = all_to_all_single


def timed_group(world: World, watch: Stopwatch) -> TimedProcessGroup:
    """A timed group of all ranks; every rank must call this. torch creates groups by the name of a backend, so one is
    registered."""
    name = f"timed{len(dist.Backend.backend_list)}"  # a name can be registered once, and a process may do this again
    dist.Backend.register_backend(
        name,
        lambda opts, _: TimedProcessGroup(world, watch, name=str(opts.group_id)),
        extended_api=True,
        devices=["cpu", "cuda"],
    )
    group = dist.new_group(backend=name)
    assert isinstance(group, TimedProcessGroup)
    return group
