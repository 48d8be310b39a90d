"""What a rank's memory is used for. The first steps are looked at after every operator; all others are left alone.

Parts are those of the moment when most was in use, so they add up to the peak: parameters, gradients and optimizer state are the
tensors themselves, of which a rank may hold a part; activations are what the forward pass left in use; `other` is the rest (data,
buffers, batches, temporaries, parameters fetched from other ranks).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.worker.measure.allocator import Allocator
from paceline.worker.measure.clock import Stopwatch, now
from paceline.worker.measure.sizes import bytes_of, has_address, held, is_cut, optimizer_state, proportional, resident

# The first step makes the optimizer's state, the second is like all that follow; both lie in the warm-up that no speed counts.
STEPS = 2
# A reading after every operator must not take longer than the operators. On a heap full of holes it would: malloc walks them all.
_QUICK_S = 200e-6
_MUCH = 1.1
_MOST_DISTURBED = 3  # all that is looked at must lie in the warm-up


@dataclass(slots=True)
class _Moment:
    """The moment of the peak: how much was in use, in which phase, after how many operators, and the bytes of the gradients."""

    used: int = 0
    phase: str = ""
    num_operators: int = 0
    gradients: int = 0


@dataclass(slots=True)
class _Step:
    """Bytes in use during one step. `began` leaves out the gradients of the step before, which are freed first."""

    began: int = 0
    state: int = 0  # the optimizer's, when the step began: the first step has none yet
    activations: int = 0
    after_backward: int = 0
    ended: int = 0
    most: _Moment = field(default_factory=_Moment)


@dataclass(slots=True)
class _Peaks:
    """The allocator's own peak, where it keeps one (a GPU's), for training and for evaluation apart."""

    training: int = 0
    evaluation: int = 0

    def note(self, allocator: Allocator | None, *, evaluation_begins: bool) -> None:
        if allocator is None or (peak := allocator.peak()) is None:
            return
        if evaluation_begins:
            self.training = max(self.training, peak)
        else:
            self.evaluation = max(self.evaluation, peak)
        allocator.forget_peak()


class Memory(TorchDispatchMode):
    """`with memory: step()` looks at one step; `close()` says what was seen. 15 us an operator while it looks, nothing otherwise."""

    supports_higher_order_operators = True  # torch.cond and its like are operators too

    @classmethod
    def is_infra_mode(cls) -> bool:
        """It only watches: a function that is compiled stays compiled under it."""
        return True

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, allocator: Allocator | None, why: str | None, watch: Stopwatch,
        *, graphs: Callable[[], int | None] = lambda: None, single_graph: bool = False,
    ) -> None:  # fmt: skip
        """`graphs`: how often the step stopped to make a graph so far, if it makes any; `single_graph`: it is one, without phases."""
        super().__init__()
        self._model, self._optimizer, self._allocator, self._why, self._watch = model, optimizer, allocator, why, watch
        self._step, self._largest = _Step(), _Step()
        self._phase, self._forward_began = "", 0
        self._hooks: list[Any] = []
        self._parted = frozenset[str]()  # parameters of which this rank has a part, except while it computes with them
        self._graded: dict[int, int] = {}  # parameter -> bytes of its gradient, as they come
        self._made: dict[int, int] = {}  # address -> number of the operator that last made a tensor there
        self._num_operators = 0
        self._gradients = 0
        self._num = 0
        # A compiled model would be run eagerly under a mode, and be another one: there only the ends of phases are read.
        self._compiled = graphs() is not None or any(hasattr(module, "_orig_mod") for module in model.modules())
        self._graphs, self._single_graph = graphs, single_graph
        self._graphs_before: int | None = None
        self._disturbed = 0
        self._closely = False
        self._peaks = _Peaks()
        self._proportional: int | None = None
        if allocator is not None:
            allocator.forget_peak()

    @property
    def looks(self) -> bool:
        return self._num < STEPS and self._allocator is not None

    # ---- one step, looked at closely ----

    def __enter__(self) -> Memory:
        assert self._allocator is not None
        self._num += 1
        self._graphs_before = self._graphs()
        before = now()
        used = self._allocator.in_use()
        self._closely = not self._compiled and now() - before < _QUICK_S
        self._parted = frozenset(name for name, parameter in self._model.named_parameters() if is_cut(parameter))
        self._graded.clear()  # the step begins by letting go of them
        self._made.clear()
        self._num_operators = 0
        gradients = bytes_of(p.grad for p in self._model.parameters() if p.grad is not None)
        self._step = _Step(began=used - gradients, state=bytes_of(optimizer_state(self._optimizer)))
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._has_gradient)
            for parameter in self._model.parameters()
            if parameter.requires_grad
        ]
        self._watch.on_switch = self._between
        if self._closely:
            super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._closely:
            super().__exit__(*error)
        self._watch.on_switch = None
        self._step.ended = self._look()
        for hook in self._hooks:
            hook.remove()
        self._gradients = max(self._gradients, bytes_of(p.grad for p in self._model.parameters() if p.grad is not None))
        if self._graphs() != self._graphs_before and self._disturbed < _MOST_DISTURBED:
            # It was compiling: what that takes is no step's. Another one is looked at instead.
            self._disturbed += 1
            self._num -= 1
            return
        # The second step, because the first also sees libraries make their buffers; unless it is a short batch's.
        if self._step.most.used * _MUCH >= self._largest.most.used:
            self._largest = self._step

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "to_local") for kind in types):
            return NotImplemented  # first by whoever knows the parts; what it does with them comes by here
        out = func(*args, **(kwargs or {}))
        self._num_operators += 1
        given = {tensor.data_ptr() for tensor in args if has_address(tensor)}
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if has_address(tensor) and tensor.data_ptr() not in given:  # a view of what was given is nothing new
                self._made[tensor.data_ptr()] = self._num_operators
        self._look()
        return out

    def _has_gradient(self, parameter: torch.Tensor) -> None:
        """A gradient is booked some operators after it was computed: it may have been there at the peak already."""
        if parameter.grad is None:
            return
        size = held(parameter.grad)
        made = self._made.get(parameter.grad.data_ptr()) if has_address(parameter.grad) else None
        most = self._step.most
        if made is not None and made <= most.num_operators and id(parameter) not in self._graded:
            most.gradients += size
        self._graded[id(parameter)] = size

    def _look(self) -> int:
        assert self._allocator is not None
        used = self._allocator.in_use()
        if used > self._step.most.used:
            self._step.most = _Moment(used, self._phase, self._num_operators, sum(self._graded.values()))
        return used

    def _between(self, before: str, after: str) -> None:
        used = self._look()
        if before == "forward":
            self._step.activations = max(self._step.activations, used - self._forward_began - self._fetched())
        if before == "backward":
            self._step.after_backward = max(0, used - self._step.began - sum(self._graded.values()))
        self._phase = after
        if after == "forward":
            self._forward_began = used

    def _fetched(self) -> int:
        """What FSDP holds of other ranks' parts at the end of a forward pass: no activations."""
        if not self._parted:
            return 0
        return bytes_of(p for name, p in self._model.named_parameters() if name in self._parted and not is_cut(p))

    def evaluating(self, begins: bool) -> None:
        """At both ends of an evaluation: a test batch may need more than a training step, and must not be taken for one."""
        self._peaks.note(self._allocator, evaluation_begins=begins)

    # ---- what was seen ----

    def weigh(self) -> None:
        """Called at the end of training while all ranks are alive: when one exits, its share of the shared pages falls to the others."""
        self._proportional = proportional()

    def close(self, *, data_bytes: int | None, data_shared: bool = False) -> dict[str, Any]:
        """`peak_bytes`: the allocator's peak. On a GPU it is that of all training steps, on a host the larger of the steps looked at.
        `steady_bytes` is in use between two of those, `end_bytes` at the end: much more would be a leak. `data_shared`: the data's
        bytes are held once a machine, outside of what the allocator counts."""
        rss, steady = resident()
        parameters, optimizer = bytes_of(self._model.parameters()), bytes_of(optimizer_state(self._optimizer))
        row: dict[str, Any] = {
            "peak_bytes": None, "steady_bytes": None, "end_bytes": None, "reserved_bytes": None, "evaluation_peak_bytes": None,
            "peak_in": None, "rss_bytes": rss, "rss_steady_bytes": steady, "pss_bytes": self._proportional, "data_shared": data_shared,
            "allocator": None, "why": self._why,
            "sizes": {
                "parameters": parameters, "gradients": self._gradients, "optimizer": optimizer, "activations": None, "data": data_bytes,
            },
            "parts": dict.fromkeys(("parameters", "gradients", "optimizer", "activations", "other")),
        }  # fmt: skip
        if self._allocator is None or not self._num:
            return row
        step, most = self._largest, self._largest.most
        peak = max(self._peaks.training, most.used)
        # Until the backward pass is over its activations are there; then only what the step still holds of them.
        left = step.after_backward if most.phase in ("communication", "optimizer") else step.activations
        state = optimizer if most.phase == "optimizer" else step.state
        tensors = {"parameters": parameters, "gradients": most.gradients, "optimizer": state}
        if peak < sum(tensors.values()):
            why = (
                f"the allocator ({self._allocator.name}) counted less than the model's own tensors hold: some are not its own "
                "(a file mapped into memory), or the model is smaller than its noise"
            )
            return {**row, "why": why}
        activations = max(0, min(left, most.used - step.began - most.gradients, peak - sum(tensors.values())))
        row["sizes"]["activations"] = None if self._single_graph else step.activations
        closely = (
            None
            if self._closely
            else "the step is one graph: its activations are in `other`"
            if self._single_graph
            else "read at the ends of phases only: a reading takes long here, or the model is compiled"
        )
        return {
            **row,
            "peak_bytes": peak,
            "steady_bytes": step.ended,
            "end_bytes": self._allocator.in_use(),
            "reserved_bytes": self._allocator.reserved(),
            "evaluation_peak_bytes": self._peaks.evaluation or None,
            "peak_in": most.phase,
            "allocator": self._allocator.name,
            "why": closely,
            "parts": {
                **tensors,
                "activations": None if self._single_graph else activations,
                "other": peak - sum(tensors.values()) - (0 if self._single_graph else activations),
            },
        }
