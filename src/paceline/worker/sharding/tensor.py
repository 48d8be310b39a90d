"""`sharding=tensor`: layers cut over ranks by torch's DTensor, as the task's `tensor_plan(model)` says. Every rank sees every sample.

What is not cut is on every rank and computed there alike: no gradient is exchanged, and that ranks stay one model is checked.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import parallelize_module

from paceline.base.errors import RunFailed
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.sharding import Plain, Share, num_parameters
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.sharding.tensor_plan import plan_of
from paceline.worker.sharding.timed_group import timed_group
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.tree import tensors_of
from paceline.worker.world.collectives import all_gather, all_reduce_, broadcast
from paceline.worker.world.join import World

_FAR = 1e-2  # outputs that differ by more than this share are different outputs, not the same one rounded otherwise


class CutLayers(Plain):
    """Gradients of cut parameters are complete on their rank; those of all others are the same on every rank."""

    word = "tensor"

    def __init__(self, task_module: TaskModule, task: Task, world: World, watch: Stopwatch) -> None:
        model = task_module.model
        plan = plan_of(task, model)
        shared = _shared(model)
        self.group = timed_group(world, watch)
        # With a name of its own: torch keeps what it found out for one mesh and uses it, group and all, for one that looks alike.
        mesh = DeviceMesh.from_group(
            self.group, world.device.type, mesh_dim_names=(f"tensor{self.group.getGroupName()}",)
        )
        # Every rank has rank 0's values already, so each takes its part of its own.
        parallelize_module(model, mesh, plan, src_data_rank=None)
        _whole_parts(model, task, world)
        _still_shared(model, shared, task)
        super().__init__(task_module, world)
        self.share, self.reduces_over_ranks = Share(0, 1), False
        self._task, self._watch = task, watch
        self._hook = task_module.register_forward_hook(lambda _module, _args, outputs: self._compare(outputs))

    @contextlib.contextmanager
    def accumulate(self, *, last: bool) -> Generator[None]:
        """Where a layer's activations were cut along another dimension than its parameters, their gradients are partial
        and are summed here."""
        yield
        if last:
            for parameter in self._parameters:
                gradient = parameter.grad
                if (
                    isinstance(gradient, DTensor)
                    and isinstance(parameter, DTensor)
                    and gradient.placements != parameter.placements
                ):
                    parameter.grad = gradient.redistribute(placements=parameter.placements)

    def gradients(self) -> list[torch.Tensor]:
        return [_local(gradient) for gradient in super().gradients()]

    def reduce(self, count: Any) -> None:
        """Every rank had every sample, so its count is everybody's."""
        for gradient in self.gradients():
            gradient.div_(count)

    def norm(self) -> torch.Tensor:
        """What is cut counts over all ranks, the rest once."""
        parts = {True: [], False: []}
        for parameter in self._parameters:
            if parameter.grad is not None:
                parts[_is_cut(parameter)].append(_local(parameter.grad))
        mine, same = (torch.nn.utils.get_total_norm(parts[cut]).to(self.world.device) for cut in (True, False))
        square = torch.square(mine.to(torch.promote_types(mine.dtype, torch.float32))).reshape(1)
        with self._watch.aside():
            all_reduce_(square, self.world)
        return torch.sqrt(square[0] + torch.square(same.to(square)))

    def synchronize(self, *, at_once: bool = False) -> None:
        """All ranks do the same arithmetic on the same values. Copies that differ by more than rounding mean that they
        did not."""
        if not at_once:
            return
        for name, parameter in self._model.named_parameters():
            if _is_cut(parameter):
                continue
            mine = _local(parameter.detach())
            first = broadcast(mine.clone(), self.world)
            size, apart = first.abs().max(), (mine - first).abs().max()
            if bool(apart > 100 * torch.finfo(mine.dtype).eps * size):
                raise RunFailed(
                    f"sharding=tensor: {name} is on every rank and must stay the same, but on rank {self.world.rank} it is "
                    f"{float(apart):.2g} away from rank 0's: the task computes something else on each rank (a random number, the "
                    "rank itself), or its tensor_plan leaves a part of a result unsummed",
                    kind="mismatch",
                )
            mine.copy_(first)

    def _compare(self, outputs: Any) -> None:
        """After the first forward pass: the outputs must be whole and equal on all ranks, or the plan is not
        complete."""
        self._hook.remove()
        tensors = list(tensors_of(outputs))
        if any(isinstance(tensor, DTensor) for tensor in tensors):
            raise RunFailed(
                f"{self._task.name}: sharding=tensor gave outputs that are DTensors; let the last layer of tensor_plan give plain "
                "tensors (use_local_output=True) that are whole (output_layouts=Replicate())",
                kind="mismatch",
            )
        mine = torch.stack([_print(tensor) for tensor in tensors]).to(self.world.device)
        with self._watch.aside():
            rows = all_gather(mine, self.world)
            self.world.count("all_gather", mine.nbytes)
        if not all(_alike(row, rows[0]) for row in rows):
            raise RunFailed(
                f"{self._task.name}: sharding=tensor gave other outputs on one rank than on another: tensor_plan leaves a result in "
                "parts; end every row of cut layers with one whose output is whole (RowwiseParallel, or output_layouts=Replicate())",
                kind="mismatch",
            )

    def read_back(self) -> dict[str, Any]:
        """From the parameters themselves; alike on every rank, because each has equal parts."""
        cut = Counter(
            f"{type(module).__name__}.{name} {_dimension(parameter)}"
            for module in self._model.modules()
            for name, parameter in module.named_parameters(recurse=False)
            if _is_cut(parameter)
        )
        local = sum(_local(parameter).numel() for parameter in self._model.parameters())
        return {
            "cut": dict(sorted(cut.items())),
            "parameters": {"rank": local, "model": num_parameters(self._model, self.in_parts)},
        }


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """What is here of it; the very memory, so that it can be changed."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _is_cut(parameter: torch.Tensor) -> bool:
    return isinstance(parameter, DTensor) and not all(isinstance(place, Replicate) for place in parameter.placements)


def _dimension(parameter: torch.Tensor) -> str:
    assert isinstance(parameter, DTensor)
    return ", ".join(
        f"by dimension {place.dim}" if isinstance(place, Shard) else str(place) for place in parameter.placements
    )


def _print(tensor: torch.Tensor) -> torch.Tensor:
    """[number of elements, norm, sum with pseudo-random signs]: different parts of one result may agree in the first
    two, but not in the last."""
    value = tensor.detach().to(torch.float64).reshape(-1)
    signs = ((torch.arange(len(value), device=value.device) * 2_654_435_761) >> 16) % 2 * 2 - 1
    return torch.stack([torch.full_like(value.sum(), len(value)), value.norm(), (value * signs).sum()])


def _alike(mine: torch.Tensor, first: torch.Tensor) -> bool:
    """Written so that what is not a number is not alike either."""
    near = (mine - first)[:, 1:].abs() <= _FAR * first[:, 1:2]
    return bool((mine[:, 0] == first[:, 0]).all() and near.all())


def _whole_parts(model: torch.nn.Module, task: Task, world: World) -> None:
    """DTensor would cut 10 outputs over 4 ranks into 3, 3, 3 and 1. Code that expects equal parts would compute
    nonsense, so that is refused."""
    for name, parameter in model.named_parameters():
        for place in parameter.placements if isinstance(parameter, DTensor) else ():
            if isinstance(place, Shard) and parameter.shape[place.dim] % world.size:
                raise RunFailed(
                    f"{task.name}: sharding=tensor cuts {name} of shape {list(parameter.shape)} by its dimension {place.dim} over "
                    f"{world.size} ranks, and {parameter.shape[place.dim]} is no multiple of {world.size}: choose a number of "
                    "processes that divides it, or another size of the model",
                    kind="mismatch",
                )


def _shared(model: torch.nn.Module) -> list[list[str]]:
    """Names of parameters that are one parameter, where there are several."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _still_shared(model: torch.nn.Module, shared: list[list[str]], task: Task) -> None:
    """A layer gets new parameters when it is cut. Weights that it shared with another layer would then be two, so that
    is refused."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for group in shared:
        if len({id(parameters[name]) for name in group}) > 1:
            raise RunFailed(
                f"{task.name}: sharding=tensor cannot cut {' and '.join(group)}, which share one weight: leave both out of tensor_plan",
                kind="mismatch",
            )
