"""Model and optimizer through Hugging Face's `Accelerator.prepare`, and what accelerate says of itself compared with what was asked.

accelerate is asked and never believed: where its launcher or its variables are not what it expects, it trains N models on N
ranks, or in another format, without a word. It gets no feature but mixed precision, and each one that its variables (or its
own configuration file, through its launcher) could switch on besides is fixed here or found below.

fp16 needs a GPU, where accelerate's own gradient scaler works with it (`tests/gpu/test_cuda.py`); on a CPU a rule refuses it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from paceline.base.errors import RunFailed
from paceline.records.fingerprint import version
from paceline.spec.run import Spec
from paceline.worker.transform.precision import is_mixed
from paceline.worker.world.join import World


@dataclass(frozen=True, slots=True)
class RankSetup:
    """A rank's place in the world, as Paceline or as accelerate has it. `kind` is accelerate's DistributedType."""

    num_processes: int
    process_index: int
    kind: str
    device: str
    mixed_precision: str
    accumulation: int


_SENTENCES = {
    "num_processes": "accelerate sees a world of {got}, not {asked}: it would train another model than the one asked for",
    "process_index": "accelerate takes this process for rank {got}, not {asked}",
    "kind": "accelerate trains as {got}, not as {asked}: look for ACCELERATE_ variables and for its configuration file",
    "device": "accelerate trains on {got}, not on {asked}: look for ACCELERATE_ variables",
    "mixed_precision": "accelerate has mixed precision {got}, not {asked}",
    "accumulation": "accelerate accumulates the gradients of {got} batches, not of {asked}",
}


def differences(asked: RankSetup, got: RankSetup) -> list[str]:
    """A sentence for each thing that accelerate has set up differently; empty when it does what was asked."""
    want, have = asdict(asked), asdict(got)
    return [
        sentence.format(asked=want[name], got=have[name])
        for name, sentence in _SENTENCES.items()
        if have[name] != want[name]
    ]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` gave: the model in its wrapper, the optimizer in its own."""

    accelerator: Any
    model: torch.nn.Module
    optimizer: Any

    def read_back(self) -> dict[str, Any]:
        """`ddp` is null where accelerate left the model unwrapped, which it does for a process that is alone."""
        flags = ("find_unused_parameters", "broadcast_buffers")
        wrapped = isinstance(self.model, DistributedDataParallel)
        return {
            "version": version("accelerate"),
            "distributed_type": self.accelerator.distributed_type.value,
            "mixed_precision": self.accelerator.mixed_precision,
            "gradient_scaler": self.accelerator.scaler is not None,
            "ddp": {name: getattr(self.model, name) for name in flags} if wrapped else None,
        }


def prepare(module: torch.nn.Module, optimizer: torch.optim.Optimizer, spec: Spec, world: World) -> Prepared:
    """Calls `Accelerator.prepare` as a user would, or raises RunFailed with everything that is not as asked."""
    accelerator = _accelerator(spec)
    # Where OMP_NUM_THREADS is not set, accelerate chooses a number of threads by itself.
    assert isinstance(spec.threads, int)
    torch.set_num_threads(spec.threads)
    got = _setup_of(accelerator)
    wrong = differences(_asked(spec, world, kind=got.kind), got)
    if not wrong:  # otherwise the next line might join, wait for or wrap something that is not ours
        model, wrapped = accelerator.prepare(module, optimizer)
        prepared = Prepared(accelerator, model, wrapped)
        wrong = _wrapping(prepared, module, optimizer, spec, world)
        if not wrong:
            return prepared
    raise RunFailed("; ".join(wrong), kind="mismatch")


def _accelerator(spec: Spec) -> Any:
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs, GradientAccumulationPlugin

    ddp = DistributedDataParallelKwargs(
        # Rank 0's running statistics before every forward would be a rule of DDP's own; ours is the setting `buffers`.
        broadcast_buffers=False,
        # A layer no rank used must keep no gradient, as on one process; without this, DDP fails at the second step.
        find_unused_parameters=True,
    )
    try:
        return Accelerator(
            cpu=spec.device == "cpu", mixed_precision=spec.precision if is_mixed(spec) else "no", kwargs_handlers=[ddp],
            # Left out, each of these is taken from the environment.
            gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1), dynamo_backend="no",
        )  # fmt: skip
    except (ValueError, ImportError, NotImplementedError, RuntimeError) as error:
        raise RunFailed(
            f"accelerate cannot be used here ({' '.join(str(error).split())[:300]}); look for ACCELERATE_ variables, and for "
            "those of another launcher (LOCAL_RANK, WORLD_SIZE)",
            kind="mismatch",
        ) from error


def _setup_of(accelerator: Any) -> RankSetup:
    return RankSetup(
        accelerator.num_processes, accelerator.process_index, accelerator.distributed_type.value, _place(accelerator.device),
        accelerator.mixed_precision, accelerator.gradient_accumulation_steps,
    )  # fmt: skip


def _place(device: torch.device) -> str:
    """One name for one place: accelerate says `cpu:0` for the CPU and, alone, `cuda` for the GPU that is current."""
    if device.type != "cuda":
        return device.type
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"


def _asked(spec: Spec, world: World, *, kind: str) -> RankSetup:
    """A process that is alone may be NO, or what accelerate calls a distributed run of one (torchrun's variables are set)."""
    several = "MULTI_CPU" if world.device.type == "cpu" else "MULTI_GPU"
    right = kind if world.size == 1 and kind in ("NO", several) else several
    mixed = spec.precision if is_mixed(spec) else "no"
    return RankSetup(world.size, world.rank, right, _place(world.device), mixed, 1)


def _wrapping(
    prepared: Prepared, module: torch.nn.Module, optimizer: torch.optim.Optimizer, spec: Spec, world: World
) -> list[str]:
    """Whether the objects are those that do what accelerate says. Its word for the backend is not among them: it says what it
    would have joined, and uses the group it finds, which is ours and was read back when it was joined."""
    wrong: list[str] = []
    model = prepared.model
    if isinstance(model, DistributedDataParallel):
        if model.process_group is not dist.group.WORLD:
            wrong.append("accelerate's DDP talks over another process group than the world's")
    elif world.size > 1 or model is not module:
        wrong.append(f"accelerate wrapped the model as {type(model).__name__}, not in DistributedDataParallel")
    if getattr(prepared.optimizer, "optimizer", None) is not optimizer:
        wrong.append("accelerate steps another optimizer than the one it was given")
    if spec.precision == "fp16" and prepared.accelerator.scaler is None:
        wrong.append("accelerate has no gradient scaler for fp16: it would train in fp32")
    return wrong
