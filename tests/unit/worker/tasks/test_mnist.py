"""The MNIST tasks: the reports' parameter counts, the embedded images, the user's files and what is wrong in them."""

from __future__ import annotations

import hashlib
import struct
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.base.errors import BadInput
from paceline.worker.tasks import idx
from paceline.worker.tasks.mnist import ConvNet, LeNet, mnist


def write(folder: Path, split: str, images: np.ndarray, labels: np.ndarray) -> None:
    for kind, array in (("images", images), ("labels", labels)):
        header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        path = folder / f"{split}-{kind}-idx{array.ndim}-ubyte"
        path.write_bytes(header + array.astype(np.uint8).tobytes())


@pytest.mark.parametrize(
    ("task", "num_parameters", "num_outputs"),
    [(ConvNet(), 4_266, 10), (LeNet(), 50_692, 120), (LeNet(full=True), 61_706, 10)],
)
def test_models_are_the_reports(task: ConvNet | LeNet, num_parameters: int, num_outputs: int) -> None:
    model = task.model()
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters
    assert model(torch.zeros(3, 1, 28, 28)).shape == (3, num_outputs)


def test_lenet_activations_are_report_d() -> None:
    """Report D, per layer at batch 8: 150,528 + 37,632 + 51,200 + 12,800 + 3,840 bytes."""
    x = torch.zeros(8, 1, 28, 28)
    sizes = []
    for name, layer in LeNet().model().named_children():
        x = layer(x)
        if name.startswith(("conv", "pool")):
            sizes.append(x.numel() * x.element_size())
    assert sizes == [150_528, 37_632, 51_200, 12_800, 3_840]


@pytest.mark.parametrize(
    ("split", "num", "first_labels", "counts"),
    [
        ("train", 10_000, [5, 0, 4, 1, 9, 2, 1, 3, 1, 4], [1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978]),
        ("test", 2_000, [7, 2, 1, 0, 4, 1, 4, 9, 5, 9], [175, 234, 219, 207, 217, 179, 178, 205, 192, 194]),
    ],
)
def test_embedded_images(split: str, num: int, first_labels: list[int], counts: list[int]) -> None:
    images, labels = mnist(None, split)
    assert (images.shape, images.dtype) == ((num, 1, 28, 28), torch.float32)
    assert (labels.shape, labels.dtype) == ((num,), torch.int64)
    assert labels[:10].tolist() == first_labels
    assert labels.bincount().tolist() == counts
    assert images.min().item() == pytest.approx(-0.1307 / 0.3081)
    assert images.max().item() == pytest.approx((1 - 0.1307) / 0.3081)
    assert abs(images.mean().item()) < 0.05
    assert abs(images.std().item() - 1) < 0.05


def test_embedded_files_fit_and_are_attributed() -> None:
    folder = resources.files("paceline.worker.tasks").joinpath("embedded")
    files = {entry.name: entry.read_bytes() for entry in folder.iterdir()}
    attribution = files.pop("ATTRIBUTION.md").decode()
    files = {name: content for name, content in files.items() if name.endswith("-ubyte.gz")}
    assert len(files) == 4
    assert sum(map(len, files.values())) <= 2_000_000
    for name, content in files.items():
        assert f"`{name}`" in attribution
        assert f"{len(content):,}" in attribution
        assert content[4:8] == b"\0\0\0\0"  # no time stamp: cutting them again gives the same bytes


def test_tasks_give_both_splits(tmp_path: Path) -> None:
    images = np.zeros((3, 28, 28))
    images[0, 0, 0] = 255
    write(tmp_path, "train", images, np.array([3, 1, 9]))
    write(tmp_path, "t10k", images[:2], np.array([0, 7]))
    for task in (ConvNet(data=str(tmp_path)), LeNet(data=str(tmp_path), full=True)):
        x, y = task.train_data()
        assert x.shape == (3, 1, 28, 28)
        assert x[0, 0, 0, 0].item() == pytest.approx((1 - 0.1307) / 0.3081)
        assert y.tolist() == [3, 1, 9]
        assert task.test_data()[1].tolist() == [0, 7]


def test_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "train", np.zeros((1, 28, 28)), np.zeros(1))
    assert len(mnist("~", "train")[0]) == 1


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (np.zeros((3, 28, 28)), np.zeros(2), ["3 images", "2 labels"]),
        (np.zeros((0, 28, 28)), np.zeros(0), ["0 images"]),
        (np.zeros((2, 32, 30)), np.zeros(2), ["32 x 30", "28 x 28"]),
        (np.zeros((2, 28, 28)), np.array([9, 10]), ["label 10 at position 1", "0 to 9"]),
    ],
)
def test_fault_is_one_sentence(tmp_path: Path, images: np.ndarray, labels: np.ndarray, words: list[str]) -> None:
    write(tmp_path, "train", images, labels)
    with pytest.raises(BadInput) as caught:
        ConvNet(data=str(tmp_path)).train_data()
    (sentence,) = caught.value.problems
    assert "\n" not in sentence
    for word in [str(tmp_path), *words]:
        assert word in sentence


def test_damaged_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "files", lambda _package: tmp_path)
    with pytest.raises(BadInput, match="missing from this installation"):
        mnist(None, "train")


def test_embedded_pixels_are_the_published_ones() -> None:
    """Digests of the first 10,000 x 784 and 2,000 x 784 pixel bytes of the original files."""
    folder = resources.files("paceline.worker.tasks").joinpath("embedded")
    for name, digest in {"train": "2f7182bf021ffc5c", "t10k": "170ff6838184f9ec"}.items():
        pixels = idx.parse(folder.joinpath(f"{name}-images-idx3-ubyte.gz").read_bytes(), name=name, ndim=3)
        assert hashlib.sha256(pixels.tobytes()).hexdigest()[:16] == digest
