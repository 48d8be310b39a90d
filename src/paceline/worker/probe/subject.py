"""The model under the probe, on parts of one batch: its randomness stilled, BatchNorm held still where its effect is known anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.worker.probe.samples import Samples, host_states
from paceline.worker.probe.still import Still
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.tree import leaves_of
from paceline.worker.transform import side_effects
from paceline.worker.world.seed import seed_host

_SEED = 0x5EED1  # one that nobody chooses
Places = Sequence[int]


class Subject:
    """`drew`: whether anything random was asked for so far. `moved_generators`: of Python, NumPy or torch. `puts_back`: numbers in Python
    and buffers are as before after each look, so that all looks are at the same model."""

    def __init__(self, task: Task, model: torch.nn.Module, samples: Samples) -> None:
        self.task, self.model, self.samples = task, model, samples
        self.drew, self.puts_back, self.moved_generators = False, True, False

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def compute(
        self,
        places: Places,
        what: Callable[[Any, Any], Any],
        *,
        training: bool,
        hold: bool = True,
        forward: bool = True,
        seed: int = _SEED,
    ) -> Any:
        """`what(outputs, batch)` for these samples, with the same random numbers each time. `hold`: BatchNorm normalises
        with its running statistics, as in evaluation. `forward`: False where a step computes the outputs itself, from noise alone
        perhaps, which is then another for each sample."""
        self.model.train(training)
        for module in self.model.modules():
            if hold and isinstance(module, _BatchNorm):
                module.eval()
        seed_host(seed)
        before = host_states()
        batch = self.samples.batch(places, training=training)
        counts, buffers = side_effects.Kept(self.model, self.task), copies(self.model)
        with Still(() if forward else places) as still:
            found = what(self.task.forward(self.model, batch) if forward else None, batch)
        if self.puts_back:
            counts.put_back()
            put_back(self.model, buffers)
        self.moved_generators |= host_states() != before
        self.drew |= still.drew or self.moved_generators
        return found

    def outputs(self, places: Places, *, training: bool, hold: bool = True, seed: int = _SEED) -> Any:
        with torch.no_grad():
            return self.compute(places, lambda outputs, batch: outputs, training=training, hold=hold, seed=seed)

    def disturb(self, amount: float) -> None:
        """Other weights: zeros and equal numbers, which many models begin with, hide what a loss or a score does."""
        generator = torch.Generator().manual_seed(_SEED)
        with torch.no_grad():
            for parameter in self.model.parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter.dtype)
                size = parameter.detach().float().square().mean().sqrt().item() or 0.1
                parameter.add_(noise * (amount * size))


def copies(model: torch.nn.Module, *, weights: bool = False) -> dict[str, torch.Tensor]:
    """Of its buffers, and of its parameters too with `weights`."""
    held = [*model.named_buffers(), *(model.named_parameters() if weights else ())]
    return {name: tensor.detach().clone() for name, tensor in held}


def put_back(model: torch.nn.Module, before: dict[str, torch.Tensor]) -> None:
    """Buffers that were made since stay."""
    with torch.no_grad():
        for name, tensor in (*model.named_buffers(), *model.named_parameters()):
            if name in before and before[name].shape == tensor.shape:
                tensor.copy_(before[name])


def rows_of(outputs: Any, start: int, stop: int, num: int) -> list[torch.Tensor] | None:
    """The rows of some samples in every tensor of the outputs for `num`; None where there is no row, or a fixed number
    of rows, a sample."""
    found: list[torch.Tensor] = []
    for leaf in leaves_of(outputs):
        if not isinstance(leaf, torch.Tensor) or not leaf.dim():
            continue
        if len(leaf) % num:
            return None
        each = len(leaf) // num
        found.append(leaf[start * each : stop * each])
    return found


def overlap(
    one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What both have of each tensor: where batches are padded to their longest sample, a sample's rows are longer in one than in the
    other."""
    if [tensor.dim() for tensor in one] != [tensor.dim() for tensor in other]:
        return [*one], [*other]
    places = [
        tuple(slice(min(sizes)) for sizes in zip(a.shape, b.shape, strict=True))
        for a, b in zip(one, other, strict=True)
    ]
    return [a[at] for a, at in zip(one, places, strict=True)], [b[at] for b, at in zip(other, places, strict=True)]


def differ(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor], tolerance: float) -> bool:
    if [tensor.shape for tensor in one] != [tensor.shape for tensor in other]:
        return True
    for a, b in zip(one, other, strict=True):
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return True
            continue
        finite = torch.isfinite(a) & torch.isfinite(b)  # masks are often minus infinity
        a, b = a[finite].double(), b[finite].double()
        if float((a - b).norm()) > tolerance * max(float(a.norm()), float(b.norm())):
            return True
    return False
