"""The MNIST tasks, report B's ConvNet and report D's LeNet, on the images that ship with Paceline or the user's own.
They are written as a user writes a task and must not know any setting: seeds, batches, loss are the framework's."""

from __future__ import annotations

from collections import OrderedDict
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor, nn

from paceline.base.errors import BadInput
from paceline.worker.tasks import idx

# Mean and deviation of the 60,000 training images; the figures everybody uses, so that results compare.
_MEAN, _DEVIATION = 0.1307, 0.3081
_SPLITS = {"train": "train", "test": "t10k"}


def mnist(data: str | None, split: str) -> tuple[Tensor, Tensor]:
    """(images [N,1,28,28] float32, labels [N] int64) of "train" or "test"; `data=None` is the embedded subset."""
    images, labels = _embedded(_SPLITS[split]) if data is None else _folder(Path(data).expanduser(), _SPLITS[split])
    # One float32 array, normalised in place: the full training set is 188 MB, and a second copy would double that.
    pixels = torch.from_numpy(images[:, None].astype("float32"))
    pixels.div_(255).sub_(_MEAN).div_(_DEVIATION)
    return pixels, torch.from_numpy(labels.astype("int64"))


def _embedded(split: str) -> tuple[idx.Bytes, idx.Bytes]:
    """The subset that ships with Paceline, so that the first run needs neither network nor folder."""
    folder = resources.files("paceline.worker.tasks").joinpath("embedded")

    def part(name: str, ndim: int) -> idx.Bytes:
        try:
            blob = folder.joinpath(name).read_bytes()
        except OSError:
            raise BadInput(f"{name} is missing from this installation of Paceline; install it again") from None
        return idx.parse(blob, name=name, ndim=ndim)

    return part(f"{split}-images-idx3-ubyte.gz", 3), part(f"{split}-labels-idx1-ubyte.gz", 1)


def _folder(folder: Path, split: str) -> tuple[idx.Bytes, idx.Bytes]:
    """The user's own files, checked for everything that would otherwise surface as a tensor error mid-training."""
    image_path, label_path = idx.locate(folder, split)
    images, labels = idx.read(image_path, ndim=3), idx.read(label_path, ndim=1)
    if len(images) != len(labels):
        raise BadInput(f"{image_path} holds {len(images)} images, {label_path.name} beside it {len(labels)} labels")
    if not len(images):
        raise BadInput(f"{image_path}: holds 0 images; there is nothing to train on")
    if images.shape[1:] != (28, 28):
        height, width = images.shape[1:]
        raise BadInput(f"{image_path}: images are {height} x {width} pixels, must be 28 x 28")
    if labels.max() > 9:
        raise BadInput(f"{label_path}: label {labels.max()} at position {labels.argmax()}; labels must be 0 to 9")
    return images, labels


class ConvNet:
    """Report B: two small convolutions and one linear layer, 4,266 parameters."""

    def __init__(self, data: str | None = None) -> None:
        self.data = data

    def model(self) -> nn.Module:
        return nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(1, 4, 3, padding=1),
                relu1=nn.ReLU(),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(4, 8, 3, padding=1),
                relu2=nn.ReLU(),
                pool2=nn.MaxPool2d(2),
                flatten=nn.Flatten(),
                linear=nn.Linear(392, 10),
            )
        )

    def train_data(self) -> tuple[Tensor, Tensor]:
        return mnist(self.data, "train")

    def test_data(self) -> tuple[Tensor, Tensor]:
        return mnist(self.data, "test")


class LeNet:
    """Report D: LeNet's three convolutions, 50,692 parameters; `full=True` adds LeNet-5's linear layers: 61,706."""

    def __init__(self, data: str | None = None, full: bool = False) -> None:
        self.data = data
        self.full = full

    def model(self) -> nn.Module:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(1, 6, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            conv3=nn.Conv2d(16, 120, 5),
            flatten=nn.Flatten(),
        )
        # Report D counts memory for the convolutions alone. To train exactly that network, its 120 outputs are taken
        # as logits: labels run from 0 to 9, so only the first 10 can be right, and the other 110 learn to be small.
        if self.full:
            layers.update(relu3=nn.ReLU(), linear1=nn.Linear(120, 84), relu4=nn.ReLU(), linear2=nn.Linear(84, 10))
        return nn.Sequential(layers)

    def train_data(self) -> tuple[Tensor, Tensor]:
        return mnist(self.data, "train")

    def test_data(self) -> tuple[Tensor, Tensor]:
        return mnist(self.data, "test")
