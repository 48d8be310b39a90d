"""Report E's stack of convolutions on MNIST: many equal layers in a row, the place to compare ways to run convolution + ReLU.
It must not know any setting; which kernel computes a layer is decided elsewhere."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from paceline.base.errors import BadInput
from paceline.worker.tasks.mnist import mnist

_POOL = 4  # 28 x 28 -> 7 x 7: the last layer stays small, and the time is the convolutions'


def _layer(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(OrderedDict(conv=nn.Conv2d(before, after, 3, padding=1), relu=nn.ReLU()))


class Stack(nn.Module):
    """`times` passes through `layers`; a layer that is used again is one module, so its weights are stored once."""

    def __init__(self, channels: int, layers: int, times: int) -> None:
        super().__init__()
        self.times = times
        self.first = _layer(1, channels)
        self.layers = nn.ModuleList(_layer(channels, channels) for _ in range(layers))
        self.pool = nn.MaxPool2d(_POOL)
        self.linear = nn.Linear(channels * (28 // _POOL) ** 2, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(images)
        for _ in range(self.times):
            for layer in self.layers:
                x = layer(x)
        return self.linear(self.pool(x).flatten(1))


class ConvStack:
    """A first convolution 1 -> channels, `layers` more that keep the size, a linear layer.

    `shared=True` applies one layer `layers` times. That is what report E did with 10, and why it never learned."""

    def __init__(self, data: str | None = None, layers: int = 2, channels: int = 16, shared: bool = False) -> None:
        counts = {"layers": layers, "channels": channels}
        problems = [f"{name}={value}: must be at least 1" for name, value in counts.items() if value < 1]
        if problems:
            raise BadInput(problems)
        self.data, self.layers, self.channels, self.shared = data, layers, channels, shared

    def model(self) -> nn.Module:
        return Stack(self.channels, *((1, self.layers) if self.shared else (self.layers, 1)))

    def units(self, model: nn.Module) -> list[nn.Module]:
        return list(model.get_submodule("layers").children())

    def train_data(self) -> tuple[Tensor, Tensor]:
        return mnist(self.data, "train")

    def test_data(self) -> tuple[Tensor, Tensor]:
        return mnist(self.data, "test")
