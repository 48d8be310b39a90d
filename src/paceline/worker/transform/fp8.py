"""`precision=fp8`: linear layers in torchao's fp8 form, which of them, and how many really took part.

Weights stay in fp32, and the rest of the model computes in bf16. torchao is an extra: it is imported here alone, when it is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.spec.rules.precision import FP8_CAPABILITY, FP8_MULTIPLE

# module, filter -> the module with the layers the filter takes replaced
Convert = Callable[[torch.nn.Module, Callable[[torch.nn.Module, str], bool]], torch.nn.Module]


def fits(module: torch.nn.Module, _name: str = "") -> bool:
    """A plain linear layer whose sizes the GPU's fp8 product takes. A subclass has a forward of its own, which would be lost."""
    return type(module) is torch.nn.Linear and not (
        module.in_features % FP8_MULTIPLE or module.out_features % FP8_MULTIPLE
    )


def convert(inside: torch.nn.Module, device: torch.device) -> Float8:
    """Every layer that fits, the first and the last included. Otherwise RunFailed: the rules checked this too, but
    perhaps on another machine."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        needed = ".".join(map(str, FP8_CAPABILITY))
        raise RunFailed(
            f"asked for precision fp8, which needs a GPU of capability {needed} or more; the rank has none: use bf16",
            kind="mismatch",
        )
    return Float8(inside, _torchao())


def _torchao() -> Convert:
    try:
        from torchao.float8 import (  # pyright: ignore[reportMissingImports]
            Float8LinearConfig,
            convert_to_float8_training,
        )
    except ImportError as error:
        raise RunFailed(
            f"asked for precision fp8, which is torchao's, and it cannot be imported ({str(error).splitlines()[0][:200]}): "
            "pip install 'paceline[fp8]'",
            kind="mismatch",
        ) from error
    # One scale a tensor, taken anew in every step. Padding: the weights' gradient is a product over the samples, and a short
    # batch need not be a multiple of 16.
    config = Float8LinearConfig(pad_inner_dim=True)
    return lambda model, choose: convert_to_float8_training(model, module_filter_fn=choose, config=config)


class Float8:
    """Pairs of layers of `inside`, a module that contains the model: the fp8 layer, and the plain one it was made from.
    The two share their parameters. `inside` is around the model because the model itself may be one linear layer."""

    def __init__(self, inside: torch.nn.Module, convert: Convert) -> None:
        self.inside = inside
        before = {name: module for name, module in _named(inside).items() if fits(module)}
        convert(inside, fits)
        after = _named(inside)
        self._places = [(after[name.rpartition(".")[0]], name.rpartition(".")[2]) for name in before]
        self._pairs = [(after[name], plain) for name, plain in before.items()]
        self._ran: int | None = None

    @property
    def _converted(self) -> list[torch.nn.Module]:
        return list({id(fast): fast for fast, plain in self._pairs if fast is not plain}.values())

    @contextlib.contextmanager
    def plainly(self) -> Generator[None]:
        """The plain layers in their places."""
        try:
            for (parent, name), (fast, plain) in zip(self._places, self._pairs, strict=True):
                plain.training = fast.training
                setattr(parent, name, plain)
            yield
        finally:
            for (parent, name), (fast, _) in zip(self._places, self._pairs, strict=True):
                setattr(parent, name, fast)

    def looked(self, called: set[torch.nn.Module]) -> str | None:
        """How many took part in the first forward; a sentence where none did."""
        self._ran = sum(module in called for module in self._converted)
        if self._ran:
            return None
        return (
            f"asked for precision fp8, but of the model's {self._num_linear()} linear layers {len(self._converted)} are in fp8, and "
            "none of those took part in the first step"
        )

    def read_back(self) -> dict[str, Any]:
        """`share`: of the model's linear layers, those that took part in fp8; known after the first step."""
        linear = self._num_linear()
        share = None if self._ran is None or not linear else self._ran / linear
        return {"linear_layers": linear, "converted": len(self._converted), "ran": self._ran, "share": share}

    def _num_linear(self) -> int:
        return sum(isinstance(module, torch.nn.Linear) for module in self.inside.modules())


def _named(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """A layer that stands in two places is listed under both names: each of them is replaced."""
    return dict(module.named_modules(remove_duplicate=False))
