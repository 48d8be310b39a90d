"""The world's process group with a listener: what torch's own sharding says in the middle of the model is timed and counted here.

A group is what torch lets one bring along; nothing of torch is replaced. Every message goes to the world's group as it is.
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


class TimedProcessGroup(dist.ProcessGroup):
    """Names and signatures are torch's: its C++ side finds a method by its name. 2.13 has `all_gather_single` where earlier ones
    have `_allgather_base`; both are here. DTensor calls the coalesced ones, with one tensor."""

    def __init__(self, world: World, watch: Stopwatch, *, name: str) -> None:
        super().__init__(world.rank, world.size)  # pyright: ignore[reportCallIssue]  (the stub lacks this one)
        self._world, self._watch, self._name = world, watch, name
        self._inner: Any = dist.group.WORLD
        self.num = 0  # messages heard

    def getRank(self) -> int:
        return self._world.rank

    def getSize(self) -> int:
        return self._world.size

    def getBackendName(self) -> str:
        return "heard"

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def _get_backend(self, device: torch.device) -> Any:
        """A group of torch's own asks its backend what it can do; we are both."""
        return self

    def shutdown(self) -> None:
        self._inner = None  # the world is left by who joined it

    def _say(self, said: Sequence[Tensor], call: Callable[[], Any]) -> Any:
        """The answer is waited for here, where it is communication: torch would wait at its first use, which is the next operator.
        On a GPU nobody waits but the stream."""
        with self._watch.aside(), together():
            work = call()
            work.wait()
        self._world.sent.add(sum(tensor.nbytes for tensor in said))
        self.num += 1
        return work

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        return self._say(tensors, lambda: self._inner.allreduce(tensors, opts))

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        return self._say(tensors, lambda: self._inner.allreduce_coalesced(tensors, opts))

    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        return self._say(tensors, lambda: self._inner.broadcast(tensors, opts))

    def allgather(self, outputs: Any, inputs: Sequence[Tensor], opts: Any = None) -> Any:
        return self._say(inputs, lambda: self._inner.allgather(outputs, inputs, opts))

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        call = self._either("all_gather_single", "_allgather_base")
        return self._say([input], lambda: call(output, input, opts))

    def all_gather_single_coalesced(self, outputs: Any, inputs: Sequence[Tensor], opts: Any = None) -> Any:
        call = self._either("all_gather_single_coalesced", "allgather_into_tensor_coalesced")
        return self._say(inputs, lambda: call(outputs, inputs, opts))

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        call = self._either("reduce_scatter_single", "_reduce_scatter_base")
        return self._say([input], lambda: call(output, input, opts))

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Sequence[Tensor], opts: Any = None) -> Any:
        call = self._either("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced")
        return self._say(inputs, lambda: call(outputs, inputs, opts))

    def scatter(self, outputs: Sequence[Tensor], inputs: Any, opts: Any = None) -> Any:
        return self._say(
            [part for parts in inputs for part in parts], lambda: self._inner.scatter(outputs, inputs, opts)
        )

    def all_to_all_single(self, output: Tensor, input: Tensor, outs: Any, ins: Any, opts: Any = None) -> Any:
        call = self._either("all_to_all_single", "alltoall_base")
        return self._say([input], lambda: call(output, input, outs, ins, opts))

    def barrier(self, opts: Any = None) -> Any:
        return self._say((), lambda: self._inner.barrier(opts))

    def _either(self, new: str, old: str) -> Callable[..., Any]:
        return getattr(self._inner, new, None) or getattr(self._inner, old)

    _allgather_base: Any = all_gather_single
    allgather_into_tensor_coalesced: Any = all_gather_single_coalesced
    _reduce_scatter_base: Any = reduce_scatter_single
    reduce_scatter_tensor_coalesced: Any = reduce_scatter_single_coalesced
    alltoall_base: Any = all_to_all_single


def timed_group(world: World, watch: Stopwatch) -> TimedProcessGroup:
    """A group of all ranks that is listened to; all ranks together. torch makes groups by the name of a backend, so there is one."""
    name = f"heard{len(dist.Backend.backend_list)}"  # a name can be registered once, and a process may do this again
    dist.Backend.register_backend(
        name,
        lambda opts, _: TimedProcessGroup(world, watch, name=str(opts.group_id)),
        extended_api=True,
        devices=["cpu", "cuda"],
    )
    group = dist.new_group(backend=name)
    assert isinstance(group, TimedProcessGroup)
    return group
