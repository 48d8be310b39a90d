"""`remat`: activations of the model's units are computed again in the backward pass instead of kept.

`full` keeps a unit's inputs only. `selective` also keeps the outputs of matrix products, convolutions and attention,
which are expensive to compute and few among all activations. Both give the same numbers, bit by bit: random draws are
repeated, and running statistics stay as the first pass left them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec

_aten = torch.ops.aten
_DEAR = frozenset(
    {
        _aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.addbmm, _aten.mv, _aten.addmv, _aten.linear, _aten.convolution,
        _aten._scaled_mm, _aten._scaled_dot_product_flash_attention, _aten._scaled_dot_product_flash_attention_for_cpu,
        _aten._scaled_dot_product_efficient_attention, _aten._scaled_dot_product_cudnn_attention,
    }
)  # fmt: skip
_OURS = ("paceline::conv_relu",)  # by name: they are known to torch where they are used

Buffers = list[tuple[torch.nn.Module, str, torch.Tensor]]


def apply(spec: Spec, model: torch.nn.Module, units: Sequence[torch.nn.Module]) -> None:
    """Each unit's own forward is replaced on the object, so that no name in a state_dict changes."""
    if spec.remat == "none":
        return
    for unit in units:
        unit.forward = Recomputed(unit, spec.remat)


def read_back(model: torch.nn.Module) -> str:
    """From the modules themselves: what they would do if they were called."""
    return "+".join(sorted({again.kind for again in _recomputed_units(model)})) or "none"


def recomputed(model: torch.nn.Module) -> int:
    """How many units were computed again so far. A unit whose children are called directly never is."""
    return sum(again.times > 0 for again in _recomputed_units(model))


def nothing_recomputed(spec: Spec, num: int) -> str | None:
    """After the steps: the sentence for a model none of whose units (`num` of them, of any rank) was computed again."""
    if spec.remat == "none" or num:
        return None
    return (
        f"asked for remat={spec.remat}, but no unit of the model is called as a whole with something to train in it, so nothing was "
        "computed again: let the task name its blocks in units(model), or use remat=none"
    )


def _recomputed_units(model: torch.nn.Module) -> Iterator[Recomputed]:
    for module in model.modules():
        if isinstance(again := module.__dict__.get("forward"), Recomputed):
            yield again


class Recomputed:
    """A unit's forward, whose backward computes it once more. `kind` is the word of the setting, `times` how often it was done."""

    def __init__(self, unit: torch.nn.Module, kind: str) -> None:
        self.unit, self.kind, self.times = unit, kind, 0
        self._forward: Callable[..., Any] = unit.forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._forward(*args, **kwargs)
        # As they are now: a layer that changes its own buffers must see them so again. Which ones it changes nobody says, and
        # torch's own BatchNorm changes them behind autograd's back; so all are copied.
        before = [
            (module, name, buffer.detach().clone())
            for module in self.unit.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        return checkpoint(
            self._forward,
            *args,
            use_reentrant=False,
            preserve_rng_state=True,
            context_fn=lambda: self._contexts(before),
            **kwargs,
        )

    def _contexts(self, before: Buffers) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        first, second = nullcontext(), nullcontext()
        if self.kind == "selective":
            first, second = create_selective_checkpoint_contexts(_keep)
        return first, self._counted(_repeating(second, before))

    @contextlib.contextmanager
    def _counted(self, second: AbstractContextManager[Any]) -> Generator[None]:
        """Counted in the second computation itself: a forward that was replaced may never have been called."""
        self.times += 1
        with second:
            yield


@contextlib.contextmanager
def _repeating(inner: AbstractContextManager[Any], before: Buffers) -> Generator[None]:
    """Around the second computation: it changes copies of the buffers as they were before the first one, so the real
    ones change once."""
    after = [(module, name, module._buffers[name]) for module, name, _ in before]
    for module, name, buffer in before:
        module._buffers[name] = buffer
    try:
        with inner:
            yield
    except RuntimeError as error:
        if "has been mutated" in str(error):
            raise RunFailed(
                "remat=selective: the model changes in place what a product, a convolution or attention gave (a ReLU with "
                "inplace=True, say), so it cannot be kept: use remat=full, or change nothing in place",
                kind="mismatch",
            ) from error
        raise
    finally:
        for module, name, buffer in after:
            module._buffers[name] = buffer


def _keep(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Operators that draw random numbers are always computed again; otherwise later draws would differ from the first
    pass."""
    dear = (operator.overloadpacket in _DEAR or operator.name() in _OURS) and not _draws(operator, args, kwargs)
    return CheckpointPolicy.MUST_SAVE if dear else CheckpointPolicy.PREFER_RECOMPUTE


def _draws(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    names = [argument.name for argument in operator._schema.arguments]
    return bool({**dict(zip(names, args, strict=False)), **kwargs}.get("dropout_p"))
