"""A loss that is a module: torch's criteria, with weights of classes perhaps, or one with parameters of its own (a learned temperature, the
centres of classes), which are trained and saved with the model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.tasks.hooks import parameters_of
from paceline.worker.tasks.targets import targets_of

ATTACHED = "loss_module"  # its name in the model


def with_loss_module(hooks: Mapping[str, Any]) -> dict[str, Any]:
    """The hooks, with a module in place of a loss called as `loss(outputs, batch)`: a criterion of torch's takes outputs
    and targets."""
    loss = hooks.get("loss")
    if not isinstance(loss, torch.nn.Module):
        return dict(hooks)
    names = parameters_of(loss.forward)
    takes_batch = len(names) > 1 and names[1] == "batch"

    def of_batch(outputs: Any, batch: Any) -> Any:
        given = (outputs, batch if takes_batch else targets_of(batch))
        others = _in_format_of(outputs, loss)
        return torch.func.functional_call(loss, others, given) if others else loss(*given)

    # Weights of classes are no parameters; they too have to be where the model is, in its format.
    has_state = any(tensor.is_floating_point() for tensor in (*loss.parameters(), *loss.buffers()))
    return {**hooks, "loss": of_batch, "loss_module": loss if has_state else None}


def _in_format_of(outputs: Any, loss: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that have another number format than what the model returned: a model in a half format gives its outputs in fp32."""
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point():
        return {}
    own = [(name, buffer) for name, buffer in loss.named_buffers() if buffer.is_floating_point()]
    return {name: buffer.to(outputs.dtype) for name, buffer in own if buffer.dtype != outputs.dtype}


def attach(model: torch.nn.Module, loss: torch.nn.Module, task: str) -> None:
    """Makes it a part of the model, unless the model holds it already."""
    if any(module is loss for module in model.modules()):
        return
    if hasattr(model, ATTACHED):
        raise RunFailed(
            f"{task}: the loss is a module with parameters, and the model has a {ATTACHED} of its own: make the loss a part of the model "
            "in model()",
            kind="task",
        )
    model.add_module(ATTACHED, loss)
    if isinstance(model, torch.nn.Sequential | torch.nn.ModuleList):  # these run, or give, everything they hold
        kind = type(model)
        attached: Any = model
        attached.__class__ = type(kind.__name__, (_LayersAlone, kind), {"__module__": kind.__module__})


class _LayersAlone:
    """A container that does not count the attached loss among its layers."""

    _modules: dict[str, torch.nn.Module]

    def __len__(self) -> int:
        return len(self._modules) - 1

    def __iter__(self) -> Iterator[torch.nn.Module]:
        return (module for name, module in self._modules.items() if name != ATTACHED)
