"""Report E's CIFAR-10 task: a small convolutional network, with the report's random changes of the training images.
It is written as a user writes a task and must not know any setting: seeds, batches, devices are the framework's."""

from __future__ import annotations

import lzma
from collections import OrderedDict
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor, nn

from paceline.base.errors import BadInput
from paceline.worker.tasks import cifar_files
from paceline.worker.tasks.augment import Augment

# Of the 50,000 training images; the figures everybody uses, so that results compare.
_MEAN = (0.4914, 0.4822, 0.4465)
_DEVIATION = (0.2470, 0.2435, 0.2616)
_WIDTHS = (32, 64, 128)


def cifar(data: str | None, split: str) -> tuple[Tensor, Tensor]:
    """(images [N,3,32,32] float32, labels [N] int64) of "train" or "test"; `data=None` is the embedded subset."""
    images, labels = _embedded(split) if data is None else cifar_files.read(Path(data).expanduser(), split)
    # One float32 array, normalised in place: the full training set is 614 MB, and a second copy would double that.
    pixels = torch.from_numpy(images.astype("float32"))
    pixels.div_(255).sub_(torch.tensor(_MEAN).view(1, 3, 1, 1)).div_(torch.tensor(_DEVIATION).view(1, 3, 1, 1))
    return pixels, torch.from_numpy(labels.astype("int64"))


def _embedded(split: str) -> tuple[cifar_files.Bytes, cifar_files.Bytes]:
    """The subset that ships with Paceline, so that the first run needs neither network nor folder."""
    name = f"cifar10-{split}.bin.xz"
    try:
        blob = resources.files("paceline.worker.tasks").joinpath("embedded", name).read_bytes()
    except OSError:
        raise BadInput(f"{name} is missing from this installation of Paceline; install it again") from None
    return cifar_files.parse_binary(lzma.decompress(blob), name=name)


class CifarCNN:
    """Three blocks convolution - BatchNorm - ReLU - max-pool, then two linear layers: 620,810 parameters."""

    def __init__(self, data: str | None = None, augmented: bool = True) -> None:
        self.data = data
        # None, not a function that does nothing: then no keys are made for it either.
        self.augment = Augment(_MEAN, _DEVIATION) if augmented else None

    def model(self) -> nn.Module:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        before = 3
        for number, width in enumerate(_WIDTHS, start=1):
            layers[f"block{number}"] = nn.Sequential(
                OrderedDict(
                    conv=nn.Conv2d(before, width, 3, padding=1),
                    norm=nn.BatchNorm2d(width),
                    relu=nn.ReLU(),
                    pool=nn.MaxPool2d(2),
                )
            )
            before = width
        layers.update(flatten=nn.Flatten(), linear1=nn.Linear(2048, 256), relu=nn.ReLU(), linear2=nn.Linear(256, 10))
        return nn.Sequential(layers)

    def units(self, model: nn.Module) -> list[nn.Module]:
        return [model.get_submodule(f"block{number}") for number in range(1, len(_WIDTHS) + 1)]

    def train_data(self) -> tuple[Tensor, Tensor]:
        return cifar(self.data, "train")

    def test_data(self) -> tuple[Tensor, Tensor]:
        return cifar(self.data, "test")
