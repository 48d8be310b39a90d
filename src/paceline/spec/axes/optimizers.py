"""What each update rule takes and can be a part of. Data only: the worker builds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerTraits:
    """`captured_updates`: the values of `update` with which torch reads the learning rate from a tensor when a step is recorded as a
    CUDA graph, the best first; `captured_moving_beta`: those with which it reads Adam's first beta from one too."""

    name: str
    torch_class: str
    captured_updates: tuple[str, ...]
    captured_moving_beta: tuple[str, ...] = ()
    weight_decay: float = 0.0  # of weight_decay=auto: torch's own
    takes_momentum: bool = False
    takes_nesterov: bool = False
    has_betas: bool = False  # schedule=onecycle moves the first
    has_fused: bool = True  # update=fused
    fused_takes_dtensors: bool = True
    fused_takes_sparse: bool = True
    sparse_class: str | None = None  # torch's class for sparse gradients; None: it has none
    is_tasks: bool = False  # the task builds it: optimizer(model, lr); only the learning rate is a setting


OWN = "task"  # the word for an optimizer that the task builds; the default where it builds one

OPTIMIZERS: Mapping[str, OptimizerTraits] = MappingProxyType(
    {
        row.name: row
        for row in (
            OptimizerTraits(
                name="adam",
                torch_class="Adam",
                captured_updates=("foreach", "fused", "single"),
                captured_moving_beta=("single",),
                has_betas=True,
                sparse_class="SparseAdam",
            ),
            OptimizerTraits(
                name="adamw",
                torch_class="AdamW",
                captured_updates=("foreach", "fused", "single"),
                captured_moving_beta=("single",),
                weight_decay=0.01,
                has_betas=True,
            ),
            OptimizerTraits(
                name="sgd",
                torch_class="SGD",
                captured_updates=("fused",),
                takes_momentum=True,
                takes_nesterov=True,
                fused_takes_dtensors=False,
                fused_takes_sparse=False,
                sparse_class="SGD",
            ),
            OptimizerTraits(
                name="rmsprop",
                torch_class="RMSprop",
                captured_updates=("foreach",),
                takes_momentum=True,
                has_fused=False,
            ),
            OptimizerTraits(
                name=OWN,
                torch_class="optimizer of the task's own",
                captured_updates=("single", "foreach"),
                captured_moving_beta=("single", "foreach"),
                has_betas=True,
                has_fused=False,
                is_tasks=True,
            ),
        )
    }
)
