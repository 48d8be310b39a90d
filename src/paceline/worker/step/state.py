"""Everything that a run carries from one step to the next. What is not in here is constant, or can be computed from it.

There is one way to list it, hash it, copy it out and put it back. Values are put back into the existing tensors,
because graphs hold their addresses. Of a user's Python, what modules and the optimizer keep is seen (`module_state.py`,
`optimizer_state.py`); a counter in a global, or in an object that a module holds, is not.
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
from paceline.worker.step.module_state import ModuleState
from paceline.worker.step.optimizer_state import OptimizerState, local
from paceline.worker.world.seed import random_states, set_random_states

Tensors = dict[str, torch.Tensor]
Values = dict[str, Any]
_ALWAYS = ("unit", "optimizer", "modules", "random")  # values beside those of `others`
_FIXED = ("parameters/", "buffers/", "clips")  # tensors that are there from the start and keep their shape


class Stateful(Protocol):
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
    """`unit`: the provisional divisor of loss sums, which keeps gradients in range until the true count is known; 0 before the first
    step. `clips`: how often a gradient was clipped, and the longest. `others`: whatever else moves, by name. `on_put_back` is
    called when a snapshot was put back: executors remember things that follow from the state."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    device: torch.device
    scale: LossScale | None = None
    position: Position = field(default_factory=Position)
    unit: float = 1.0
    clips: torch.Tensor = field(init=False)
    others: dict[str, Stateful] = field(default_factory=dict[str, Stateful])
    on_put_back: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    _optimizer_state: OptimizerState = field(init=False)
    _module_state: ModuleState = field(init=False)

    def __post_init__(self) -> None:
        self.clips = clip.new_counts(self.device)
        self._optimizer_state = OptimizerState(self.optimizer, self.model)
        self._module_state = ModuleState(self.model)
        self.others["position"] = self.position
        if self.scale is not None:
            self.others["scale"] = self.scale

    # ---- listed ----

    def tensors(self) -> Tensors:
        """The live tensors, except random states, which are copies. Of what is sharded, this rank's part."""
        random, _ = random_states(self.device)
        return {
            **{f"parameters/{name}": local(tensor.detach()) for name, tensor in self.model.named_parameters()},
            **{f"buffers/{name}": local(tensor.detach()) for name, tensor in self.model.named_buffers()},
            **{f"optimizer/{name}": local(tensor.detach()) for name, tensor in self._optimizer_state.tensors().items()},
            **{f"modules/{name}": tensor.detach() for name, tensor in self._module_state.tensors().items()},
            **{f"random/{name}": tensor for name, tensor in random.items()},
            "clips": self.clips,
        }

    def values(self) -> Values:
        _, random = random_states(self.device)
        return {
            "unit": self.unit,
            "optimizer": self._optimizer_state.values(),
            "modules": self._module_state.values(),
            "random": random,
            **{name: one.state() for name, one in self.others.items()},
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

    def set_aside(self, *, parameters: bool) -> Callable[[], None]:
        """Before an evaluation in the middle of an epoch. What comes back restores buffers, what modules keep and random streams, to the
        bit, and `parameters` where the evaluation changes them. Copies stay on the device."""
        changed = [*self.model.buffers(), *(self.model.parameters() if parameters else ())]
        live = [local(tensor.detach()) for tensor in changed]
        copies = [tensor.clone() for tensor in live]
        kept = {name: tensor.detach().clone() for name, tensor in self._module_state.tensors().items()}
        values = self._module_state.values()
        random = random_states(self.device)

        @torch.no_grad()
        def put_back() -> None:
            for tensor, copy in zip(live, copies, strict=True):
                tensor.copy_(copy)
            self._module_state.restore(kept, values)
            set_random_states(self.device, *random)

        return put_back

    def put_back(self, snapshot: Snapshot) -> None:
        """Copies into the existing tensors. The optimizer's state is created where there is none yet. A snapshot of another run
        is refused before anything is changed."""
        self._check(snapshot)
        self._fill(snapshot)
        self._module_state.restore(_below("modules/", snapshot.tensors), snapshot.values["modules"])
        self.unit = snapshot.values["unit"]
        for name, one in self.others.items():
            one.restore(snapshot.values[name])
        for called in self.on_put_back:
            called()
        # last: nothing above may draw
        set_random_states(self.device, _below("random/", snapshot.tensors), snapshot.values["random"])

    def _check(self, snapshot: Snapshot) -> None:
        here, there = {*_ALWAYS, *self.others}, {*snapshot.values}
        if here != there:
            missing, more = sorted(here - there), sorted(there - here)
            _refuse(
                f"nothing for {missing[0]}, which this run has" if missing else f"{more[0]}, which this run has not"
            )
        live = {name: tensor for name, tensor in self.tensors().items() if name.startswith(_FIXED)}
        for name, tensor in live.items():
            _fits(tensor, snapshot.tensors, name)
        if unknown := [name for name in snapshot.tensors if name.startswith(_FIXED) and name not in live]:
            _refuse(f"{unknown[0]}, which this model has not")
        self._optimizer_state.check(_below("optimizer/", snapshot.tensors), snapshot.values["optimizer"])

    @torch.no_grad()
    def _fill(self, snapshot: Snapshot) -> None:
        """Parameters, buffers, clips and the optimizer."""
        self._optimizer_state.restore(_below("optimizer/", snapshot.tensors), snapshot.values["optimizer"])
        for name, tensor in self.tensors().items():
            if name.startswith(_FIXED):
                tensor.copy_(snapshot.tensors[name])


def _below(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _fits(tensor: torch.Tensor, tensors: Mapping[str, torch.Tensor], name: str) -> None:
    saved = tensors.get(name)
    if saved is None or saved.shape != tensor.shape or saved.dtype != tensor.dtype:
        got = "nothing" if saved is None else f"{saved.dtype} of shape {list(saved.shape)}"
        _refuse(f"{got} for {name}, which is {tensor.dtype} of shape {list(tensor.shape)} here")


def _refuse(what: str) -> None:
    raise RunFailed(f"the state that should be put back has {what}", kind="mismatch")
