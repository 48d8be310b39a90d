"""`kernel=fused`: 3x3 convolutions followed by ReLU, and perhaps by 2x2 max pooling, computed by our own kernel in one pass.

What follows a convolution is known only inside an `nn.Sequential`. There it is replaced by a layer with the same
parameters under the same names, and ReLU and pooling by nn.Identity, so that state_dicts stay as they were. A task may
still call the layers of a sequence one by one, which cannot be seen beforehand. So before the first step both forms of
the model compute some samples, and are compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from paceline.base.errors import RunFailed
from paceline.worker.kernels.conv import conv_relu, operators
from paceline.worker.tasks.tree import tensors_of

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# How far two orders of summation may lie apart in a model's output, by the format of its numbers; another layer is much further.
_APART = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 0.1}
_GRADIENTS_APART = {torch.float64: 1e-6, torch.float32: 0.05, torch.bfloat16: 0.5}


class FusedConv2d(nn.Module):
    """Convolution, ReLU and, with `pool`, max pooling 2x2. Under autocast it computes in the type that torch's convolution would."""

    def __init__(self, plain: nn.Conv2d, *, pool: bool) -> None:
        super().__init__()
        self.weight, self.bias, self.pool = plain.weight, plain.bias, pool
        self.inner = False  # the next layer is one of these, too
        self.training = plain.training
        operators()

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled("cpu"):
            kind = torch.get_autocast_dtype("cpu")
            x, weight, bias = x.to(kind), weight.to(kind), None if bias is None else bias.to(kind)
        return conv_relu(x, weight, bias, pool=self.pool, inner=self.inner)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, pool={self.pool}"


@dataclass(frozen=True, slots=True)
class Place:
    """A module in a container: what stands there now, and what stood there."""

    parent: nn.Module
    name: str
    new: nn.Module
    old: nn.Module


@dataclass(frozen=True, slots=True)
class Fused:
    model: nn.Module
    places: tuple[Place, ...] = field(default=(), repr=False)

    @contextlib.contextmanager
    def plainly(self) -> Generator[None]:
        """The modules that stood there, in their places."""
        try:
            for place in self.places:
                place.old.training = place.new.training
                setattr(place.parent, place.name, place.old)
            yield
        finally:
            for place in self.places:
                setattr(place.parent, place.name, place.new)

    def prove(
        self, outputs: Callable[[], Any], loss: Callable[[], Tensor], aside: Callable[[], contextlib.AbstractContextManager[Any]]
    ) -> None:  # fmt: skip
        """`outputs` and `loss` compute the same samples with torch's layers and with ours, in evaluation and in
        training; RunFailed where they differ. `aside` restores the random state, so that both draw alike. This finds a
        task that calls single layers of a sequence, and so expects a convolution without its ReLU."""
        ours = self._seen(outputs, loss, aside)
        with self.plainly():
            torchs = self._seen(outputs, loss, aside)
        same = len(ours[0]) == len(torchs[0]) and all(map(_close, ours[0], torchs[0])) and _alike(ours[1], torchs[1])
        if not same:
            raise RunFailed(
                "asked for kernel=fused, but with it the model gives other outputs or gradients than with torch's layers: the task calls "
                "single layers of its sequences, where a convolution has now become one with the ReLU behind it; use kernel=torch",
                kind="mismatch",
            )

    def _seen(
        self, outputs: Callable[[], Any], loss: Callable[[], Tensor], aside: Callable[[], contextlib.AbstractContextManager[Any]]
    ) -> tuple[list[Tensor], list[Tensor | None]]:  # fmt: skip
        """The outputs in evaluation, and the gradients in training. Running statistics are put back: nothing was
        trained."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        modes = {module: module.training for module in self.model.modules()}
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        try:
            self.model.eval()
            with aside(), torch.no_grad():
                scored = list(tensors_of(outputs()))
            self.model.train()
            with aside(), torch.enable_grad():
                gradients: list[Tensor | None] = list(torch.autograd.grad(loss(), parameters, allow_unused=True))
        finally:
            for module, mode in modes.items():
                module.training = mode
            with torch.no_grad():
                for name, buffer in self.model.named_buffers():
                    buffer.copy_(buffers[name])
        return scored, gradients


def read_back(model: nn.Module) -> dict[str, Any]:
    """From the modules themselves; `of`: the convolutions there are."""
    layers = sum(isinstance(module, FusedConv2d) for module in model.modules())
    plain = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    return {"kernel": "fused", "fused": {"layers": layers, "of": layers + plain}} if layers else {"kernel": "torch"}


def fuse(model: nn.Module) -> Fused:
    """Every convolution that fits, in place, or RunFailed with the reason why none does."""
    names = {id(module): name for name, module in model.named_modules()}
    convolutions = {id(module): module for module in model.modules() if isinstance(module, nn.Conv2d)}
    standing: dict[int, list[tuple[nn.Module, str]]] = {}
    for parent in model.modules():
        for name, child in parent._modules.items():
            if id(child) in convolutions:
                standing.setdefault(id(child), []).append((parent, name))
    chosen: list[Place] = []
    reasons: list[str] = []
    for key, plain in convolutions.items():
        follow = [_followers(parent, name) for parent, name in standing.get(key, [])]
        why = _shape(plain) or next((reason for reason in follow if isinstance(reason, str)), None)
        follow = [layers for layers in follow if not isinstance(layers, str)]
        pools = {len(layers) == 2 for layers in follow}
        if why is None and len(pools) != 1:
            why = "is used in several places, not all followed by the same layers" if pools else "is the whole model"
        if why is not None:
            reasons.append(f"{names[key] or 'it'} {why}")
            continue
        fused = FusedConv2d(plain, pool=pools.pop())
        for (parent, name), layers in zip(standing[key], follow, strict=True):
            chosen.append(Place(parent, name, fused, plain))
            chosen += [Place(parent, after, nn.Identity(), old) for after, old in layers]
    if not chosen:
        raise RunFailed(_none(len(convolutions), reasons), kind="mismatch")
    for place in chosen:
        setattr(place.parent, place.name, place.new)
    for place in chosen:
        if isinstance(place.new, FusedConv2d):
            place.new.inner = all(_before_another(at.parent, place.new) for at in chosen if at.new is place.new)
    return Fused(model, tuple(chosen))


def _none(num: int, reasons: list[str]) -> str:
    if not num:
        return "asked for kernel=fused, but the model has no convolution (nn.Conv2d): use kernel=torch"
    return (
        f"asked for kernel=fused, but the model has no convolution that our kernel computes (3x3, stride 1, padding 1, followed by ReLU "
        f"in an nn.Sequential), of {num}: {reasons[0]}; use kernel=torch"
    )


def _shape(conv: nn.Conv2d) -> str | None:
    """Why the kernel cannot compute this convolution; None if it can. A subclass has a forward of its own, which would
    be lost."""
    if type(conv) is not nn.Conv2d:
        return f"is a {type(conv).__name__}, not nn.Conv2d itself"
    if conv.kernel_size != (3, 3):
        return f"is {conv.kernel_size[0]}x{conv.kernel_size[1]}"
    if conv.padding not in ((1, 1), "same") or conv.padding_mode != "zeros":
        return f"has padding {conv.padding} ({conv.padding_mode})"
    for name, want in (("stride", (1, 1)), ("dilation", (1, 1)), ("groups", 1)):
        if getattr(conv, name) != want:
            return f"has {name} {getattr(conv, name)}"
    return _touched(conv)


def _followers(parent: nn.Module, name: str) -> list[tuple[str, nn.Module]] | str:
    """The layers that our kernel computes with the convolution: ReLU, and the pooling after it, if any; or why it
    cannot."""
    if not isinstance(parent, nn.Sequential) or type(parent).forward is not nn.Sequential.forward:
        return "stands in no nn.Sequential, so nobody can see what follows it"
    order = list(parent._modules.items())
    at = [key for key, _ in order].index(name)
    after = [(key, module) for key, module in order[at + 1 : at + 3] if module is not None]
    if not after or type(after[0][1]) is not nn.ReLU:
        return f"is followed by {type(after[0][1]).__name__ if after else 'nothing'}, not by ReLU"
    if why := _touched(after[0][1]):
        return f"is followed by a ReLU that {why}"
    if len(after) == 2 and _is_pool(after[1][1]) and not _touched(after[1][1]):
        return after
    return after[:1]


def _before_another(parent: nn.Module, fused: FusedConv2d) -> bool:
    """Whether the next layer that is not fused away, in every place of this sequence, is a fused convolution too."""
    order = [module for module in parent._modules.values() if type(module) is not nn.Identity]
    followed = zip(order, [*order[1:], None], strict=True)
    return all(isinstance(after, FusedConv2d) for module, after in followed if module is fused)


def _is_pool(module: nn.Module) -> bool:
    return (
        type(module) is nn.MaxPool2d
        and module.kernel_size in (2, (2, 2))
        and module.stride in (2, (2, 2))
        and module.padding in (0, (0, 0))
        and module.dilation in (1, (1, 1))
        and not module.ceil_mode
        and not module.return_indices
    )


def _touched(module: nn.Module) -> str | None:
    """What somebody has hung on a module would be lost with it."""
    if any(getattr(module, hooks) for hooks in _HOOKS):
        return "has hooks"
    return "has a forward of its own" if "forward" in module.__dict__ else None


def _alike(ours: list[Tensor | None], torchs: list[Tensor | None]) -> bool:
    """Compares all gradients of a model as one vector: where two values of a pooling window are nearly equal, rounding
    decides which one gets the gradient."""
    if [gradient is None for gradient in ours] != [gradient is None for gradient in torchs]:
        return False
    pairs = [(one, other) for one, other in zip(ours, torchs, strict=True) if one is not None and other is not None]
    if not pairs:
        return False
    apart = sum(float((one.double() - other.double()).square().sum()) for one, other in pairs)
    squared_norm = sum(float(other.double().square().sum()) for _, other in pairs)
    return (
        not apart > squared_norm * _GRADIENTS_APART[pairs[0][1].dtype] ** 2
    )  # nothing to compare where they are not finite


def _close(ours: Tensor, torchs: Tensor) -> bool:
    if ours.shape != torchs.shape or ours.dtype != torchs.dtype:
        return False
    if not torchs.numel() or torchs.dtype not in _APART:
        return True
    finite = torchs[torchs.isfinite()]
    scale = finite.abs().max().item() if finite.numel() else 0.0
    return torch.allclose(ours, torchs, rtol=0, atol=_APART[torchs.dtype] * scale, equal_nan=True)
