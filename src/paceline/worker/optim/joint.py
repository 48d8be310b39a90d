"""Several optimizers behind one interface, each for its own parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Joint(torch.optim.Optimizer):
    """Adam, and SparseAdam for tables with sparse gradients; or those of a task with several. `names`: what the task calls them."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer], names: Sequence[str] = ()) -> None:
        self.parts, self.names = list(parts), tuple(names)
        self.defaults = self.parts[0].defaults
        # The groups themselves, not copies: a rate that is set here is set in them.
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @property
    def by_name(self) -> dict[str, torch.optim.Optimizer]:
        return dict(zip(self.names, self.parts, strict=True))

    @property
    def state(self) -> dict[Any, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {parameter: kept for part in self.parts for parameter, kept in part.state.items()}

    def step(self, closure: Any = None) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)
