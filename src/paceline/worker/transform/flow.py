"""The number formats that flow through a model: watched while its layers run, and made fp32 where a loss is taken from them."""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.tasks import tree


class Flow:
    """The floating types of the layers' outputs while they are watched. Hooks cost time, so they are removed after the
    first step. They are on every module, not only on the leaves: a module may compute in its own forward, besides
    calling its children."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.called: set[torch.nn.Module] = set()
        self._seen: set[torch.dtype] = set()
        self._hooks = [module.register_forward_hook(self._after) for module in model.modules()]

    def _after(self, module: torch.nn.Module, _args: Any, out: Any) -> None:
        self.called.add(module)
        self.see(out)

    @property
    def open(self) -> bool:
        return bool(self._hooks)

    def see(self, value: Any) -> None:
        self._seen.update(tensor.dtype for tensor in tree.tensors_of(value) if tensor.is_floating_point())

    def close(self) -> tuple[str, ...]:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        return tuple(sorted(str(dtype).removeprefix("torch.") for dtype in self._seen))


def full(value: Any) -> Any:
    """Half-precision tensors of any nesting in fp32: a loss summed in a half format would be right to two digits."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor

    return tree.mapped(change, value)
