"""`sharding=fsdp`: parameters, gradients and optimizer state cut over ranks by torch's FSDP2 (`fully_shard`).

A rank fetches the whole parameters of one unit, computes with them and frees them; gradients are reduce-scattered. FSDP
is told to divide by nothing: the true divisor, what all ranks counted, is sent in a message of its own, as in every
other way.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _NormBase  # pyright: ignore[reportPrivateUsage]

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.ddp import dense_only
from paceline.worker.sharding.fetch import Fetch, Return
from paceline.worker.sharding.sharding import Plain
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.tasks.task import sentence
from paceline.worker.tasks.tree import tensors_of
from paceline.worker.world.collectives import all_reduce_
from paceline.worker.world.join import World

# What FSDP is told of a number format: of the parameters it fetches, and of the gradients it sums. Sums in a half format would
# lose the small ranks.
_POLICIES = {
    "fp16": MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32),
    "bf16": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    "bf16-pure": MixedPrecisionPolicy(reduce_dtype=torch.float32),
}
_OUTSIDE = (
    "sharding=fsdp: the model uses parameters of a unit without calling that unit as a whole, so they were not fetched: let the task "
    "name in units(model) modules that are called themselves, or [model] to fetch all at once"
)
# Layers that keep running statistics have them in fp32, and torch has no kernel for half weights with fp32 statistics. It has one for
# half inputs, which is also what they get under autocast.
_STATISTICS = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)


class Fsdp(Plain):
    word = "fsdp"

    def __init__(
        self, task_module: TaskModule, units: Sequence[torch.nn.Module], spec: Spec, world: World, watch: Stopwatch
    ) -> None:
        dense_only(task_module.model, "sharding=fsdp")
        mesh = DeviceMesh.from_group(dist.group.WORLD, world.device.type)  # pyright: ignore[reportArgumentType]
        policy = _POLICIES.get(spec.precision, MixedPrecisionPolicy())
        self._units = _cut(task_module, _on_their_own(units, task_module), policy, mesh, reshard=spec.reshard)
        self._root = task_module
        self._groups = [module for module in task_module.modules() if isinstance(module, FSDPModule)]
        super().__init__(task_module, world)  # its parameters are this rank's parts from here on
        self._watch, self._last, self._mesh = watch, True, mesh
        # Not of torch's classes, which are private: it asks only for what these can do.
        fetch, give_back = cast("Any", Fetch(world, watch)), cast("Any", Return(world, watch))
        for group in self._groups:
            group.set_gradient_divide_factor(1.0)
            group.set_force_sum_reduction_for_comms(True)  # gloo has no other
            group.set_custom_all_gather(fetch)
            group.set_custom_reduce_scatter(give_back)
        self._used = _Used(task_module, self._groups, self._parameters)
        # A rank may not use what another does (the newest torch alone can be told); what nobody used is found in `reduce`.
        self._takes_unused = hasattr(task_module, "set_reduce_scatter_unused_params")
        if world.size > 1 and self._takes_unused:
            task_module.set_reduce_scatter_unused_params(True)  # pyright: ignore[reportCallIssue]
        task_module.forward = fsdps_words()(task_module.forward)  # evaluation has no `accumulate` around it
        task_module.register_forward_hook(self._let_go)

    @contextlib.contextmanager
    def accumulate(self, *, last: bool) -> Generator[None]:
        """Until the last micro-batch every rank keeps whole gradients: nothing is sent, and that much memory is held."""
        if last != self._last:
            assert isinstance(self._root, FSDPModule)
            self._root.set_requires_gradient_sync(last)
            self._root.set_is_last_backward(last)
            self._last = last
            if last:
                _all_in_one_format(self._groups)
        with fsdps_words():
            yield

    def gradients(self) -> list[torch.Tensor]:
        """This rank's parts, as plain tensors."""
        parts = (parameter.grad for parameter in self._parameters)
        return [part.to_local() if isinstance(part, DTensor) else part for part in parts if part is not None]

    def reduce(self, count: Any) -> None:
        """A parameter no rank used keeps no gradient, as on one process; FSDP gives it zeros."""
        seen = torch.as_tensor(count, dtype=torch.float64, device=self.world.device).reshape(1)
        flags = torch.tensor(self._used.take(), dtype=torch.float64, device=self.world.device)
        message = all_reduce_(torch.cat([flags, seen]), self.world)
        *used, total = message.tolist()
        if not self._takes_unused and any(0 < flag < self.world.size for flag in used):
            raise RunFailed(
                f"sharding=fsdp: some ranks used a layer in this step that others did not, and FSDP of torch {torch.__version__} sums "
                "such gradients wrongly: use torch 2.13 or newer, or sharding=none",
                kind="mismatch",
            )
        for parameter, flag in zip(self._parameters, used, strict=True):
            if not flag:
                parameter.grad = None
        for gradient in self.gradients():
            gradient.div_(total)

    def norm(self) -> torch.Tensor:
        """Squares are summed over ranks in fp64: those of a long gradient do not fit into fp32."""
        mine = torch.nn.utils.get_total_norm(self.gradients()).to(self.world.device)
        if self.world.size == 1:
            return mine
        with self._watch.aside():
            squares = all_reduce_(mine.double().square().reshape(1), self.world)
        return squares.sqrt().to(mine.dtype).reshape(())

    def read_back(self) -> dict[str, Any]:
        """From FSDP's own objects. The rest of the model, outside of its units, is always kept until the backward pass."""
        kept = {_group(unit)._reshard_after_forward for unit in self._units}
        policies = [_group(unit).mp_policy for unit in self._units]
        formats = {str(p.param_dtype).removeprefix("torch.") for p in policies if p.param_dtype is not None}
        return {
            "reshard": kept.pop() if len(kept) == 1 else None,
            "units": len(self._units),
            "ranks": self._mesh.size(),
            "policy": sorted(formats) or None,
            "statistics": sum(policy == _STATISTICS for policy in policies),
        }

    def _let_go(self, _: Any, __: Any, outputs: Any) -> None:
        """After a forward pass without a backward: parameters that stayed fetched would be taken for the rank's own
        part."""
        if any(isinstance(tensor, DTensor) for tensor in tensors_of(outputs)):
            raise RunFailed(
                _OUTSIDE, kind="mismatch"
            )  # a penalty, say: its gradient would not be summed as the others are
        if not torch.is_grad_enabled():
            for group in self._groups:
                group.reshard()


class _Used:
    """Which parameters got a gradient on this rank since the last call. FSDP computes with parameter objects of its
    own, not with those of the optimizer; it makes them when a unit is first called, and keeps them."""

    def __init__(
        self, task_module: TaskModule, groups: Sequence[FSDPModule], parameters: Sequence[torch.nn.Parameter]
    ) -> None:
        self._task_module = task_module
        place = {id(parameter): index for index, parameter in enumerate(parameters)}
        self._place = {name: place[id(p)] for name, p in task_module.named_parameters() if p.requires_grad}
        self._flags = [False] * len(parameters)
        self._hooks: dict[int, Any] = {}
        for group in groups:  # after FSDP's own hook, which fetches
            assert isinstance(group, torch.nn.Module)
            self._hooks[id(group)] = group.register_forward_pre_hook(self._called)

    def _called(self, group: torch.nn.Module, _: Any) -> None:
        self._hooks.pop(id(group)).remove()
        for name, parameter in self._task_module.named_parameters():
            if name in self._place and not isinstance(parameter, DTensor):
                parameter.register_post_accumulate_grad_hook(lambda _, index=self._place[name]: self._use(index))

    def _use(self, index: int) -> None:
        self._flags[index] = True

    def take(self) -> list[bool]:
        flags, self._flags = self._flags, [False] * len(self._flags)
        return flags


def _cut(
    task_module: TaskModule,
    units: Sequence[torch.nn.Module],
    policy: MixedPrecisionPolicy,
    mesh: DeviceMesh,
    *,
    reshard: bool,
) -> list[torch.nn.Module]:
    """The units, from the innermost to the outermost; then the root, which holds the parameters that are in no unit.

    As torch has it, the root's parameters stay fetched from its forward to its backward pass: freed, they would be
    fetched again at once. Where the whole model is a unit, the root stands for it: the task's forward is always called,
    and the model itself may not be. A module whose parameters all belong to units inside of it has nothing to fetch,
    and is no unit.
    """
    targets = {id(unit): policy for unit in units if unit is not task_module.model}
    as_one = len(targets) == 0 or len(targets) < len(units)
    if policy.param_dtype is not None:
        layers = (module for module in task_module.modules() if isinstance(module, _NormBase))
        targets |= {id(layer): _STATISTICS for layer in layers if next(layer.parameters(), None) is not None}
    inside_out: list[torch.nn.Module] = []
    taken: set[int] = set()
    for module in reversed(list(task_module.modules())):
        own = {id(parameter) for parameter in module.parameters()} - taken
        if own and (id(module) in targets or (module is task_module and as_one)):
            inside_out.append(module)
            taken |= own
    try:
        for module in inside_out:
            if module is not task_module:
                fully_shard(module, mesh=mesh, reshard_after_forward=reshard, mp_policy=targets[id(module)])
        fully_shard(task_module, mesh=mesh, reshard_after_forward=reshard and as_one, mp_policy=policy)
    except (ValueError, AssertionError) as error:  # a parameter without a dimension, for one
        raise RunFailed(
            f"sharding=fsdp: torch cannot cut this model ({' '.join(str(error).split())[:300]})", kind="mismatch"
        ) from error
    return inside_out


def _on_their_own(units: Sequence[torch.nn.Module], task_module: TaskModule) -> list[torch.nn.Module]:
    """Leaves out modules that share a parameter with another part of the model. A parameter belongs to one unit, so a
    shared one belongs to the root."""
    owners: dict[int, list[torch.nn.Module]] = {}
    for module in task_module.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(module)
    alone: list[torch.nn.Module] = []
    for unit in units:
        inside = {id(module) for module in unit.modules()}
        if all(id(owner) in inside for p in unit.parameters() for owner in owners[id(p)]):
            alone.append(unit)
    return alone


def _group(unit: torch.nn.Module) -> Any:
    """FSDP's internal object of a unit; there is no public way to it."""
    return fully_shard.state(unit)._fsdp_param_group  # pyright: ignore[reportFunctionMemberAccess]


def _all_in_one_format(groups: Sequence[FSDPModule]) -> None:
    """Called before the last micro-batch. FSDP has added up the gradients of the earlier ones in fp32, and cannot send
    half-precision ones together with those. So a parameter without a gradient is given zeros to add to; if no rank used
    it, `reduce` removes them."""
    for group in groups:
        assert isinstance(group, torch.nn.Module)
        for cut in getattr(_group(group), "fsdp_params", ()):
            parameter = getattr(cut, "_unsharded_param", None)  # there is none before its unit is first called
            if parameter is None or not parameter.requires_grad or cut.reduce_dtype in (None, parameter.dtype):
                continue
            if cut.unsharded_accumulated_grad is None:
                cut.unsharded_accumulated_grad = torch.zeros(
                    parameter.shape, dtype=cut.reduce_dtype, device=parameter.device
                )


@contextlib.contextmanager
def fsdps_words() -> Generator[None]:
    """Turns what FSDP raises into one sentence. Errors of the task's own code pass unchanged."""
    try:
        yield
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        if "DTensor" in str(error):
            raise RunFailed(f"{_OUTSIDE} ({sentence(error)[:200]})", kind="mismatch") from error
        if any(place in _raised_in(error) for place in ("/distributed/fsdp/", "/distributed/tensor/")):
            raise RunFailed(
                f"sharding=fsdp: torch's FSDP cannot train this model ({sentence(error)[:300]}); use sharding=none or sharding=ddp",
                kind="mismatch",
            ) from error
        raise


def _raised_in(error: BaseException) -> str:
    """The file in which the error was raised."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename).as_posix()
