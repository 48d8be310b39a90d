"""Number formats by name, applied to a model and to what goes into it, and the formats that layers really gave, read back.

Floating point only: labels and ids keep their type. Under wrap=accelerate mixed precision is its maker's work; here it is checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.spec.rules.precision import TF32_CAPABILITY
from paceline.spec.run import Spec
from paceline.worker.tasks import tree
from paceline.worker.transform.flow import Flow, full
from paceline.worker.transform.fp8 import Float8

# Of weights, gradients and optimizer state; arithmetic has it too, but for tf32, which rounds the factors of products.
_WHOLE = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16-pure": torch.bfloat16}
# Of the arithmetic only, cast operation by operation; fp8 is this, with its linear layers in torchao's own.
_MIXED = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}
_WORDS = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_HALVES = ("float16", "bfloat16")


def is_mixed(spec: Spec) -> bool:
    return spec.precision in _MIXED


def dtype(spec: Spec) -> torch.dtype:
    """The type of the weights. Under mixed precision they stay in fp32, and autocast casts each operation."""
    return torch.float32 if is_mixed(spec) else _WHOLE[spec.precision]


def data_dtype(spec: Spec) -> torch.dtype:
    """The type of the batches. Never a half type: targets are in them too, and a loss against rounded targets is
    another loss."""
    return torch.promote_types(dtype(spec), torch.float32)


def entrance(spec: Spec, device: torch.device) -> Callable[[Any], Any] | None:
    """The cast of a batch on its way into the model, where the model has another number format than the batch."""
    to = dtype(spec)
    return None if to == data_dtype(spec) else lambda batch: cast(batch, to=to, device=device)


def cast(value: Any, *, to: torch.dtype, device: torch.device) -> Any:
    """A batch of any nesting with its floating tensors in `to`, all on `device`."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        kind = to if tensor.is_floating_point() else None
        return tensor.to(device=device, dtype=kind, non_blocking=True)  # from pinned memory nobody waits for the copy

    return tree.mapped(change, value)


def set_products(spec: Spec, device: torch.device) -> None:
    """Whether a GPU may round the factors of products to TF32: torch lets convolutions do so unless it is told not to.

    By torch's older switches, which 2.11 to 2.13 still have: its compiler reads them, and fails where only the newer
    `fp32_precision` was set. The first of them is the CPU's switch as well, which a task's file may have moved.
    """
    wanted = spec.precision == "tf32"
    if wanted and (device.type != "cuda" or torch.cuda.get_device_capability(device) < TF32_CAPABILITY):
        needed = ".".join(map(str, TF32_CAPABILITY))
        raise RunFailed(
            f"asked for precision tf32, which needs a GPU of capability {needed} or more; the rank has none: use fp32",
            kind="mismatch",
        )
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    torch.backends.cudnn.allow_tf32 = wanted


def products() -> dict[str, bool]:
    """What torch says of itself: are factors rounded to TF32?"""
    try:
        return {
            "matmul": torch.get_float32_matmul_precision() != "highest" or bool(torch.backends.cuda.matmul.allow_tf32),
            "convolution": bool(torch.backends.cudnn.allow_tf32),
        }
    except RuntimeError as error:
        raise RunFailed(
            "torch cannot say in which format it multiplies, because the task has moved its fp32_precision switches; leave them "
            "as they are, and ask for precision=fp32 or tf32",
            kind="mismatch",
        ) from error


def floating(tensors: Iterable[torch.Tensor]) -> list[str]:
    """The floating types among them, by torch's names, each once."""
    return sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor.is_floating_point()})


def word(parameters: Sequence[str], computed: Sequence[str], *, tf32: bool = False, fp8: bool = False) -> str:
    """Our word for what was found: a half type among the results of layers is mixed precision, if the weights are not of it.

    >>> word(["float32"], []), word(["float64"], ["float64"]), word(["float32"], ["bfloat16", "float32"])
    ('fp32', 'fp64', 'bf16')
    >>> word(["bfloat16"], ["bfloat16"]), word(["float32"], ["float32"], tf32=True)
    ('bf16-pure', 'tf32')
    """
    halves = [name for name in computed if name in _HALVES and name not in parameters]
    if fp8 and halves == ["bfloat16"]:
        return "fp8"
    if not halves and [*parameters] == ["float32"] and tf32:
        return "tf32"
    pure = {"bfloat16": "bf16-pure", "float16": "fp16-pure"}
    return "+".join(
        [_WORDS.get(name, name) for name in halves] or [pure.get(name, _WORDS.get(name, name)) for name in parameters]
    )


def disagreement(asked: str, computed: Sequence[str]) -> str | None:
    """Why these results are not what `asked` means, in one sentence; None when they are.

    Mixed precision leaves some layers in fp32 by design, so there one result in the half type is what is asked for.
    Nothing seen (a task that calls no module) is no proof of mixed precision; elsewhere the weights were checked already.
    """
    own = str((_WHOLE | _MIXED)[asked]).removeprefix("torch.")
    stray = {*computed} - {"float32", "float64", own}
    if (own in computed or (not computed and asked in _WHOLE)) and not stray:
        return None
    return f"asked for precision {asked}, but the model's layers gave {' and '.join(computed) or 'nothing that could be seen'}"


class Arithmetic:
    """The format of one run's arithmetic, for the step: the context its forward runs in, and what then really flowed.

    `by_policy`: FSDP's own policy casts, so there is nothing to cast here. `aside`: a context that keeps the random streams.
    """

    def __init__(
        self, spec: Spec, device: torch.device, flow: Flow | None,
        *, by_policy: bool = False, float8: Float8 | None = None,
        aside: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:  # fmt: skip
        self._word, self._device, self._flow = spec.precision, device, flow
        self._by_policy, self._float8, self._aside = by_policy, float8, aside
        self._pure = dtype(spec) == torch.bfloat16
        self.half_dtype = _MIXED.get(spec.precision)  # what arithmetic is cast to; None: it is in the weights' format
        self.computed: tuple[str, ...] = ()

    @property
    def half(self) -> bool:
        """Gradients are in a format in which sums over a batch would overflow, so the step computes them near the
        mean."""
        return self._pure or self.half_dtype is not None

    @property
    def rounds(self) -> bool:
        """Factors of products have fewer digits than fp32, so the same sum in another order differs in its third
        digit."""
        return self.half or self._word == "tf32"

    def autocast(self) -> AbstractContextManager[Any]:
        if self.half_dtype is None or self._by_policy:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self.half_dtype)

    def evaluation(self) -> AbstractContextManager[Any]:
        """Around an evaluation, which runs in the weights' format: fp8 layers are replaced by plain ones meanwhile."""
        return contextlib.nullcontext() if self._float8 is None else self._float8.plainly()

    def full_precision(self, outputs: Any) -> Any:
        """Outputs for the loss and the scores: in fp32, where they are in a half format."""
        return full(outputs) if self.half else outputs

    @property
    def looking(self) -> bool:
        return self._flow is not None and self._flow.open

    def look(self, outputs: Any) -> None:
        """After the first forward and before the first update: checks that the types that flowed are those that were
        asked for."""
        assert self._flow is not None
        self._flow.see(outputs)
        self.computed = self._flow.close()
        why = disagreement(self._word, self.computed)
        if why is None and self._float8 is not None:
            why = self._float8.looked(self._flow.called)
        if why is not None:
            raise RunFailed(why, kind="mismatch")

    def look_at(self, forward: Callable[[Any], Any], batch: Any) -> None:
        """The same for a step that hooks would disturb: one extra eager forward, which leaves no trace in the training.
        It runs in evaluation mode, so no running statistic moves and no dropout is drawn. Where the model contains
        collectives, all ranks must call it."""
        if not self.looking:
            return
        assert self._flow is not None
        outer = forward.modules() if isinstance(forward, torch.nn.Module) else ()
        modes = {module: module.training for module in (*outer, *self._flow.model.modules())}
        try:
            for module in modes:
                module.training = False
            with self._aside(), torch.no_grad(), self.autocast():
                self.look(forward(batch))
        finally:
            for module, mode in modes.items():
                module.training = mode

    def read_back(self) -> dict[str, Any]:
        """What torch's switches and the layers say of themselves."""
        row: dict[str, Any] = {"tf32": products()}
        if self._float8 is not None:
            row["fp8"] = self._float8.read_back()
        return row
