"""The weights of one moment of a run, for its end: a copy that costs memory, and no file until it is known to be wanted."""

from __future__ import annotations

from typing import Any

import torch


class KeptWeights:
    """Each rank keeps its own part of what `save` writes, in the host's memory: a GPU's is what a model is fitted into."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._copies: list[torch.Tensor] = []

    @torch.no_grad()
    def take(self) -> None:
        live = self._live()
        if not self._copies:
            self._copies = [tensor.to("cpu", copy=True) for tensor in live]
            return
        for copy, tensor in zip(self._copies, live, strict=True):
            copy.copy_(tensor)

    @torch.no_grad()
    def put_back(self) -> None:
        """The model's own are lost."""
        for tensor, copy in zip(self._live(), self._copies, strict=True):
            tensor.copy_(copy)

    def _live(self) -> list[torch.Tensor]:
        """Through `state_dict`, which is what `save` goes through: FSDP gathers nothing there, and gives this rank's parts. Of tied
        weights one."""
        state = self._model.state_dict(keep_vars=True).values()
        once = {id(tensor): tensor for tensor in state if isinstance(tensor, torch.Tensor)}
        return [_own(tensor) for tensor in once.values()]


def _own(tensor: Any) -> torch.Tensor:
    """Of a DTensor this rank's part, in the same memory."""
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()
