"""`sharding=ddp`: the whole model on every rank, gradients sent by torch's DistributedDataParallel while others are still computed.

DDP divides by the number of ranks, which is wrong where ranks have different numbers of samples. So its communication hook
(`measure/overlap.py`) sends plain sums, and one small message a step brings the true divisor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from paceline.base.errors import RunFailed
from paceline.records.split import COMMUNICATION
from paceline.spec.run import Spec
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.overlap import Overlap
from paceline.worker.optim.sparse import sparse_parameters
from paceline.worker.sharding.sharding import Plain
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.tasks.task import users_code
from paceline.worker.transform.precision import is_mixed
from paceline.worker.world.collectives import all_reduce_, together
from paceline.worker.world.join import World

_MEGABYTE = 1 << 20  # as DDP counts them
_WIRE = {"none": None, "fp16": torch.float16, "bf16": torch.bfloat16}


class Ddp(Plain):
    """A parameter that no rank used keeps no gradient, as on one process: DDP finds those by itself (`find_unused_parameters`)."""

    word = "ddp"

    def __init__(self, task_module: TaskModule, spec: Spec, world: World, watch: Stopwatch) -> None:
        super().__init__(task_module, world)
        dense_only(task_module.model, "sharding=ddp")
        self._watch = watch
        self._ddp = DistributedDataParallel(
            _Guarded(task_module),
            bucket_cap_mb=spec.bucket_mb,
            gradient_as_bucket_view=spec.bucket_view,
            # A layer no rank used must keep no gradient, as on one process; without this, DDP fails at the second step.
            find_unused_parameters=True,
        )
        self.module: torch.nn.Module = self._ddp
        # Rank 0's running statistics before every forward would be a rule of DDP's own; ours is the setting `buffers`. Set here
        # because the argument has two names: 2.13 warns of the one that 2.11 has.
        self._ddp.broadcast_buffers = False
        # Sums over a batch do not fit into fp16, so there gradients travel as if of one sample; under half precision they are that
        # small already. Weights in bf16 have gradients in bf16, whose sums would lose the small ranks: those are sent in fp32.
        small = spec.batch if spec.compress == "fp16" and not is_mixed(spec) else 1
        wire = torch.float32 if spec.precision == "bf16-pure" else _WIRE[spec.compress]
        self._overlap = Overlap(
            watch, world, divide=small, multiply=small, wire=wire, num_parameters=len(self._parameters)
        )
        if world.size > 1:  # alone there is nothing to send, and nobody to wait for
            self._ddp.register_comm_hook(None, self._overlap.hook)

    @contextlib.contextmanager
    def accumulate(self, *, last: bool) -> Generator[None]:
        # Ranks talk in the backward pass only: before it, an error that speaks of a closed connection is the task's own.
        talking = lambda: self._watch.part in ("backward", COMMUNICATION)  # noqa: E731
        with ddps_words("sharding=ddp", talking), contextlib.nullcontext() if last else self._ddp.no_sync():
            yield

    def reduce(self, count: Any) -> None:
        """The gradients are summed by now; here they are divided by the count of all ranks."""
        seen = torch.as_tensor(count, dtype=torch.float64, device=self._parameters[0].device).reshape(1)
        total = all_reduce_(seen.clone(), self.world)
        for gradient in self.gradients():
            if gradient.dtype in (torch.float16, torch.bfloat16):  # the divisor itself would be rounded to two digits
                gradient.copy_(gradient.float().div_(total))
            else:
                gradient.div_(total)

    def hidden_s(self) -> float:
        return self._overlap.hidden_s()

    def _sent_as(self) -> str:
        """The half-precision formats among the buckets that were sent, where the gradients themselves are wider."""
        weights = {parameter.dtype for parameter in self._parameters}
        return "+".join(word for word, wire in _WIRE.items() if wire in self._overlap.sent_as - weights) or "none"

    def read_back(self) -> dict[str, Any]:
        """`buckets`: the bytes of each, in the order they were sent. Known after the first step; a single rank has
        none."""
        return {
            "bucket_mb": self._ddp.bucket_bytes_cap / _MEGABYTE,
            "bucket_view": self._ddp.gradient_as_bucket_view,
            "compress": self._sent_as(),
            "find_unused_parameters": self._ddp.find_unused_parameters,
            "broadcast_buffers": self._ddp.broadcast_buffers,
            **({"buckets": self._overlap.sizes} if self._overlap.sizes else {}),
        }


def dense_only(model: torch.nn.Module, asked: str) -> None:
    """DDP's buckets and FSDP's parts are dense: sparse gradients of a table are refused."""
    if sparse_parameters(model):
        raise RunFailed(
            f"{asked}: the model has a table with sparse=True, whose gradients hold some rows only, and torch sends dense ones here: "
            "use sharding=none or sharding=embedding, or a table with sparse=False",
            kind="mismatch",
        )


class _Guarded(torch.nn.Module):
    """The task's forward. It marks errors of the user's code, so that they are not taken for errors of DDP."""

    def __init__(self, task_module: TaskModule) -> None:
        super().__init__()
        self.task_module = task_module

    def forward(self, batch: Any) -> Any:
        with users_code(self.task_module.task.name, self.task_module.task.source):
            return self.task_module(batch)


@contextlib.contextmanager
def ddps_words(asked: str, talking: Callable[[], bool] = lambda: True) -> Generator[None]:
    """Turns what DDP raises (a model it cannot follow, a peer that went away) into one sentence. Errors of the user's
    code pass unchanged."""
    try:
        yield
    except RuntimeError as error:
        if "finished reduction" in str(error) or "ready only once" in str(error):
            raise RunFailed(
                f"{asked}: torch's DDP cannot tell which parameters this model's outputs depend on; let the task's forward "
                f"return tensors (in tuples, lists or dicts), or use {asked.partition('=')[0]}=none",
                kind="mismatch",
            ) from error
        if not talking():
            raise
        with together():
            raise
