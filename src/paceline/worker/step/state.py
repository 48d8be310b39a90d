"""Everything that a run carries from one step to the next. What is not in here is constant, or can be computed from it.

There is one way to list it, hash it, copy it out and put it back. Values are put back into the existing tensors,
because graphs hold their addresses.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from paceline.base.errors import RunFailed
from paceline.worker.optim.scale import LossScale
from paceline.worker.step import clip
from paceline.worker.step.optimizer_state import OptimizerState
from paceline.worker.world.seed import random_states, set_random_states

Tensors = dict[str, torch.Tensor]
Values = dict[str, Any]


class Keeper(Protocol):
    """Another object with state that changes from step to step: how far ranks have drifted apart, a tally."""

    def state(self) -> Values:
        """Plain values, which JSON takes as they are."""
        ...

    def restore(self, values: Values) -> None: ...


@dataclass(slots=True)
class Position:
    """How far a run is. The rate follows from `iteration`, the samples from `epoch` and `in_epoch`."""

    iteration: int = 0  # steps begun since the start
    epoch: int = 0
    in_epoch: int = 0  # steps begun in this epoch

    def state(self) -> Values:
        return {"iteration": self.iteration, "epoch": self.epoch, "in_epoch": self.in_epoch}

    def restore(self, values: Values) -> None:
        self.iteration, self.epoch, self.in_epoch = values["iteration"], values["epoch"], values["in_epoch"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state copied out: this rank's own tensors, on the host, and plain values. Both by name."""

    tensors: Tensors
    values: Values

    def digest(self) -> str:
        """sha256 over names, types, shapes, bytes and values."""
        digest = hashlib.sha256(json.dumps(self.values, sort_keys=True).encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


@dataclass(slots=True)
class TrainState:
    """`unit`: what loss sums are divided by on their way, where a step is not one piece; 0 until the first step settles it.
    `clips`: how often a gradient was clipped, and the longest. `keepers`: whatever else moves, by name. `on_put_back` is called when
    a snapshot was put back: executors remember things that follow from the state."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device
    scale: LossScale | None = None
    position: Position = field(default_factory=Position)
    unit: float = 1.0
    clips: torch.Tensor = field(init=False)
    keepers: dict[str, Keeper] = field(default_factory=dict[str, Keeper])
    on_put_back: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    _optimizer_state: OptimizerState = field(init=False)

    def __post_init__(self) -> None:
        self.clips = clip.new_counts(self.device)
        self._optimizer_state = OptimizerState(self.optimizer, self.model)
        self.keepers["position"] = self.position
        if self.scale is not None:
            self.keepers["scale"] = self.scale

    # ---- listed ----

    def tensors(self) -> Tensors:
        """The live tensors, except random states, which are copies. Of what is sharded, this rank's part."""
        random, _ = random_states(self.device)
        return {
            **{f"parameters/{name}": local(tensor.detach()) for name, tensor in self.model.named_parameters()},
            **{f"buffers/{name}": local(tensor.detach()) for name, tensor in self.model.named_buffers()},
            **{f"optimizer/{name}": local(tensor.detach()) for name, tensor in self._optimizer_state.tensors().items()},
            **{f"random/{name}": tensor for name, tensor in random.items()},
            "clips": self.clips,
        }

    def values(self) -> Values:
        _, random = random_states(self.device)
        return {
            "unit": self.unit,
            "optimizer": self._optimizer_state.values(),
            "random": random,
            **{name: keeper.state() for name, keeper in self.keepers.items()},
        }

    # ---- copied out, put back ----

    def copy_out(self) -> Snapshot:
        values = self.values()  # first: a tally may still have to fetch what a graph has added up
        return Snapshot({name: tensor.to("cpu", copy=True) for name, tensor in self.tensors().items()}, values)

    def digest(self) -> str:
        return self.copy_out().digest()

    @contextlib.contextmanager
    def rehearsal(self) -> Generator[None]:
        """Around an update that is only tried: parameters, buffers and the optimizer are restored afterwards."""
        before = self.copy_out()
        yield
        self._fill(before)

    def put_back(self, snapshot: Snapshot) -> None:
        """Copies into the existing tensors. The optimizer's state is created where there is none yet."""
        self._fill(snapshot)
        self.unit = snapshot.values["unit"]
        for name, keeper in self.keepers.items():
            keeper.restore(snapshot.values[name])
        for called in self.on_put_back:
            called()
        random = {name.removeprefix("random/"): t for name, t in snapshot.tensors.items() if name.startswith("random/")}
        set_random_states(self.device, random, snapshot.values["random"])  # last: nothing above may draw

    @torch.no_grad()
    def _fill(self, snapshot: Snapshot) -> None:
        rows = {
            name.removeprefix("optimizer/"): tensor
            for name, tensor in snapshot.tensors.items()
            if name.startswith("optimizer/")
        }
        self._optimizer_state.restore(rows, snapshot.values["optimizer"])
        for name, tensor in self.tensors().items():
            if not name.startswith(("optimizer/", "random/")):
                copy_into(tensor, snapshot.tensors, name)


def copy_into(tensor: torch.Tensor, tensors: Mapping[str, torch.Tensor], name: str) -> None:
    saved = tensors.get(name)
    if saved is None or saved.shape != tensor.shape or saved.dtype != tensor.dtype:
        got = "nothing" if saved is None else f"{saved.dtype} of shape {list(saved.shape)}"
        raise RunFailed(
            f"the state that should be put back has {got} for {name}, which is {tensor.dtype} of shape {list(tensor.shape)} here",
            kind="mismatch",
        )
    tensor.copy_(saved)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor, sharing its memory. Recognised by its attributes, because importing DTensor takes
    half a second."""
    part: Any = tensor
    return part.to_local() if hasattr(tensor, "to_local") else tensor
