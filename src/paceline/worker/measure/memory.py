"""What a rank's memory is used for. In the first steps the allocator is read after every operator; later steps are not measured.

The parts are taken at the peak, so they add up to it. Parameters, gradients and optimizer state are counted from the tensors that this
rank holds (its shard, where they are sharded). Activations are what the forward pass left allocated. `data` is what loading and
placing the data set left allocated in this process: read from the allocator, because a data set may be a mapped file, or memory that
ranks share. `other` is the rest: buffers, batches, temporaries, and parameters fetched from other ranks.
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

# The first step creates the optimizer's state, the second is like all that follow. Both are in the warm-up, which no speed counts.
STEPS = 2
# The allocator is read after every operator only if one reading takes less than this: on a fragmented heap malloc walks every hole.
_QUICK_S = 200e-6
_MUCH = 1.1
_MOST_DISTURBED = 3  # steps measured again because they compiled: few enough to stay in the warm-up


@dataclass(slots=True)
class _Moment:
    """The peak of a step: the bytes in use, the phase, the number of operators run before it, and the bytes of the gradients."""

    used: int = 0
    phase: str = ""
    num_operators: int = 0
    gradients: int = 0


@dataclass(slots=True)
class _Step:
    """Bytes in use during one step. `began` does not count the gradients of the step before, which this step frees first."""

    began: int = 0
    state: int = 0  # optimizer state when the step began; none yet in the first step
    activations: int = 0
    after_backward: int = 0
    ended: int = 0
    most: _Moment = field(default_factory=_Moment)


@dataclass(slots=True)
class _Peaks:
    """The peaks that a GPU's allocator keeps itself, training and evaluation apart. Both stay 0 on a host."""

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
    """`with memory: step()` measures one step, and `close()` returns the result. It costs 15 us per operator in a measured step, and
    nothing in the others. `looks` says whether the next step is to be measured."""

    supports_higher_order_operators = True  # torch.cond and its like are operators too

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Tells torch that this mode only observes, so that compiled functions stay compiled under it."""
        return True

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, allocator: Allocator | None, why: str | None, watch: Stopwatch,
        *, graphs: Callable[[], int | None] = lambda: None, single_graph: bool = False,
    ) -> None:  # fmt: skip
        """`graphs()`: how many graphs the step has compiled so far; None if it compiles none. `single_graph`: the step is one graph,
        without phases."""
        super().__init__()
        self._model, self._optimizer, self._allocator, self._why, self._watch = model, optimizer, allocator, why, watch
        self._step, self._largest = _Step(), _Step()
        self._phase, self._forward_began = "", 0
        self._hooks: list[Any] = []
        self._parted = frozenset[str]()  # sharded parameters: FSDP has them whole only while it computes with them
        self._graded: dict[int, int] = {}  # id of a parameter -> bytes of its gradient, in this step so far
        self._made: dict[int, int] = {}  # address -> number of the operator that last allocated a tensor there
        self._num_operators = 0
        self._gradients = 0
        self._num = 0
        # Under a dispatch mode a compiled model would run eagerly, so the allocator is read only at the ends of its phases.
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

    # ---- one measured step ----

    def __enter__(self) -> Memory:
        assert self._allocator is not None
        self._num += 1
        self._graphs_before = self._graphs()
        before = now()
        used = self._allocator.in_use()
        self._closely = not self._compiled and now() - before < _QUICK_S
        self._parted = frozenset(name for name, parameter in self._model.named_parameters() if is_cut(parameter))
        self._graded.clear()  # the step frees them first
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
            # This step compiled, which takes memory that no later step takes. Another step is measured instead.
            self._disturbed += 1
            self._num -= 1
            return
        # The second step counts, because in the first libraries allocate their buffers; unless its batch was a short one.
        if self._step.most.used * _MUCH >= self._largest.most.used:
            self._largest = self._step

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "to_local") for kind in types):
            return NotImplemented  # DTensor handles it first; the operators it runs on the shards come here
        out = func(*args, **(kwargs or {}))
        self._num_operators += 1
        given = {tensor.data_ptr() for tensor in args if has_address(tensor)}
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if has_address(tensor) and tensor.data_ptr() not in given:  # a view of an input allocates nothing
                self._made[tensor.data_ptr()] = self._num_operators
        self._look()
        return out

    def _has_gradient(self, parameter: torch.Tensor) -> None:
        """Called some operators after the gradient was computed, so it may have been allocated before the peak already."""
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
        """Bytes of parameters that FSDP gathered and still holds when the forward pass ends: they are not activations."""
        if not self._parted:
            return 0
        return bytes_of(p for name, p in self._model.named_parameters() if name in self._parted and not is_cut(p))

    def evaluating(self, begins: bool) -> None:
        """Called at both ends of an evaluation, which may need more memory than a training step: its peak is kept apart."""
        self._peaks.note(self._allocator, evaluation_begins=begins)

    # ---- results ----

    def weigh(self) -> None:
        """Called at the end of training while all ranks are alive: when one exits, its share of the shared pages goes to the others."""
        self._proportional = proportional()

    def close(self, *, data_bytes: int | None, data_shared: bool = False, data_held: int = 0) -> dict[str, Any]:
        """The record's figures. `peak_bytes`: the allocator's peak, on a GPU over all training steps, on a host over the measured ones.
        `step_bytes`: that without the data set, which one process has and ranks of a machine share: what can be compared between them.
        `steady_bytes`: in use after a measured step; `end_bytes`: in use now, at the end of training. Much more at the end is a leak.
        `data_bytes`: the size of the data, `data_held`: what of it this process has from the allocator. `data_shared`: the ranks of a
        machine share one copy of the data, which the allocator does not count."""
        rss, steady = resident()
        parameters, optimizer = bytes_of(self._model.parameters()), bytes_of(optimizer_state(self._optimizer))
        row: dict[str, Any] = {
            "peak_bytes": None, "step_bytes": None, "steady_bytes": None, "end_bytes": None, "reserved_bytes": None,
            "evaluation_peak_bytes": None, "peak_in": None, "rss_bytes": rss, "rss_steady_bytes": steady,
            "pss_bytes": self._proportional, "data_shared": data_shared, "allocator": None, "why": self._why,
            "sizes": {
                "parameters": parameters, "gradients": self._gradients, "optimizer": optimizer, "activations": None, "data": data_bytes,
            },
            "parts": dict.fromkeys(("parameters", "gradients", "optimizer", "activations", "data", "other")),
        }  # fmt: skip
        if self._allocator is None or not self._num:
            return row
        step, most = self._largest, self._largest.most
        peak = max(self._peaks.training, most.used)
        # Activations are freed by the backward pass; after it only what the step still holds is counted.
        left = step.after_backward if most.phase in ("communication", "optimizer") else step.activations
        state = optimizer if most.phase == "optimizer" else step.state
        tensors = {"parameters": parameters, "gradients": most.gradients, "optimizer": state}
        if peak < sum(tensors.values()):
            why = (
                f"the allocator ({self._allocator.name}) counted less than the model's own tensors hold: some are not its own "
                "(a file mapped into memory), or the model is smaller than its noise"
            )
            return {**row, "why": why}
        activations = None if self._single_graph else min(left, most.used - step.began - most.gradients)
        row["sizes"]["activations"] = None if self._single_graph else step.activations
        parts = _parts(peak, tensors, activations, data_held)
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
            "step_bytes": peak - (parts["data"] or 0),
            "steady_bytes": step.ended,
            "end_bytes": self._allocator.in_use(),
            "reserved_bytes": self._allocator.reserved(),
            "evaluation_peak_bytes": self._peaks.evaluation or None,
            "peak_in": most.phase,
            "allocator": self._allocator.name,
            "why": closely,
            "parts": parts,
        }


def _parts(peak: int, tensors: dict[str, int], activations: int | None, data: int) -> dict[str, int | None]:
    """The peak, divided. What was read at other moments is at most what is left of it, so no part is negative and nothing is too much."""
    rest = peak - sum(tensors.values())
    kept = max(0, min(activations or 0, rest))
    held = max(0, min(data, rest - kept))
    return {**tensors, "activations": None if activations is None else kept, "data": held, "other": rest - kept - held}
