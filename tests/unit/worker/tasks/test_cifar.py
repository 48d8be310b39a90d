"""CIFAR-10: the contract's model, the embedded images, the user's files in either format and what is wrong in them."""

from __future__ import annotations

import hashlib
import lzma
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.base.errors import BadInput
from paceline.worker.tasks import cifar_files
from paceline.worker.tasks.cifar import CifarCNN, cifar
from unit.worker.tasks.old_pickle import batch

TRAIN = [f"data_batch_{number}" for number in range(1, 6)]


def records(num: int, seed: int) -> np.ndarray:
    rng = np.random.Generator(np.random.PCG64(seed))
    made = rng.integers(256, size=(num, 3073), dtype=np.uint8)
    made[:, 0] = rng.integers(10, size=num)
    return made


def write(folder: Path, form: str, each: int = 3) -> np.ndarray:
    """Five training files and a test file; the training records, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate([*TRAIN, "test_batch"]):
        made = records(each, seed)
        if form == "bin":
            (folder / f"{name}.bin").write_bytes(made.tobytes())
        else:
            (folder / name).write_bytes(batch(made[:, 1:], made[:, 0].tolist()))
    return np.concatenate([records(each, seed) for seed in range(5)])


@pytest.mark.parametrize("form", ["bin", "py"])
@pytest.mark.parametrize("below", [True, False])
def test_reads_both_formats(tmp_path: Path, form: str, below: bool) -> None:
    made = write(tmp_path / f"cifar-10-batches-{form}" if below else tmp_path, form)
    images, labels = CifarCNN(data=str(tmp_path)).train_data()
    assert (images.shape, images.dtype) == ((15, 3, 32, 32), torch.float32)
    assert (labels.dtype, labels.tolist()) == (torch.int64, made[:, 0].tolist())
    wanted = made[:, 1:].reshape(-1, 3, 32, 32) / 255
    wanted = (wanted - np.array([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)) / np.array(
        [0.2470, 0.2435, 0.2616]
    ).reshape(3, 1, 1)
    assert images.numpy() == pytest.approx(wanted, abs=1e-5)
    assert CifarCNN(data=str(tmp_path)).test_data()[1].tolist() == records(3, 5)[:, 0].tolist()


def test_model_is_the_contracts() -> None:
    task = CifarCNN()
    model = task.model()
    assert sum(parameter.numel() for parameter in model.parameters()) == 620_810
    assert model(torch.zeros(3, 3, 32, 32)).shape == (3, 10)
    kinds = [[type(layer).__name__ for layer in unit.children()] for unit in task.units(model)]
    assert kinds == [["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"]] * 3
    assert [next(unit.parameters()).shape[0] for unit in task.units(model)] == [32, 64, 128]


@pytest.mark.parametrize(("split", "each"), [("train", 100), ("test", 40)])
def test_embedded_images(split: str, each: int) -> None:
    images, labels = cifar(None, split)
    assert (images.shape, images.dtype) == ((10 * each, 3, 32, 32), torch.float32)
    assert labels.bincount().tolist() == [each] * 10
    assert images.mean(dim=(0, 2, 3)).abs().max() < 0.1
    assert (images.std(dim=(0, 2, 3)) - 1).abs().max() < 0.1


def test_embedded_files_fit_and_are_the_ones_described() -> None:
    folder = resources.files("paceline.worker.tasks").joinpath("embedded")
    attribution = folder.joinpath("ATTRIBUTION.md").read_text()
    for split, digest in {"train": "a9a3c82c2f71ea9f", "test": "b6b1c78f262be0d3"}.items():
        blob = folder.joinpath(f"cifar10-{split}.bin.xz").read_bytes()
        assert len(blob) < 2_500_000
        assert f"`cifar10-{split}.bin.xz`" in attribution and f"{len(blob):,}" in attribution
        assert hashlib.sha256(lzma.decompress(blob)).hexdigest()[:16] == digest
        assert digest in attribution


def test_damaged_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "files", lambda _package: tmp_path)
    with pytest.raises(BadInput, match="missing from this installation"):
        cifar(None, "train")


def fault(data: Path) -> str:
    with pytest.raises(BadInput) as caught:
        CifarCNN(data=str(data)).train_data()
    (sentence,) = caught.value.problems
    assert "\n" not in sentence and str(data) in sentence
    return sentence


def test_folder_missing_or_a_file_or_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "no such folder" in fault(tmp_path / "none")
    assert "is a file; name the folder" in fault(tmp_path / "file")
    assert "looked for data_batch_1.bin and data_batch_1" in fault(tmp_path)


def test_a_missing_batch_is_not_trained_without(tmp_path: Path) -> None:
    write(tmp_path, "bin")
    (tmp_path / "data_batch_3.bin").unlink()
    assert "data_batch_3.bin is missing" in fault(tmp_path)


def test_a_missing_test_batch(tmp_path: Path) -> None:
    write(tmp_path, "py")
    (tmp_path / "test_batch").unlink()
    with pytest.raises(BadInput, match="no CIFAR-10 test batches"):
        CifarCNN(data=str(tmp_path)).test_data()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (bytes(3073 * 2 - 1), "6145 bytes are no whole number of images of 3073 bytes"),
        (bytes(3073) + b"\x0a" + bytes(3072), "label 10 at position 1; labels must be 0 to 9"),
    ],
)
def test_fault_of_a_binary_batch(tmp_path: Path, content: bytes, words: str) -> None:
    write(tmp_path, "bin")
    (tmp_path / "data_batch_2.bin").write_bytes(content)
    assert words in fault(tmp_path)
    assert "data_batch_2.bin" in fault(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"no pickle at all", "not a readable CIFAR-10 python batch"),
        (batch(np.zeros((2, 3072), np.uint8), [1]), "2 images and 1 labels"),
        (batch(np.zeros((2, 3000), np.uint8), [1, 2]), "shape [2, 3000]"),
        (batch(np.zeros((0, 3072), np.uint8), []), "0 images"),
        (batch(np.zeros((2, 3072), np.uint8), [1, -1]), "label -1 at position 1"),
        (batch(np.zeros((2, 3072), np.uint8), [1, 300]), "label 300 at position 1"),
        (batch(np.zeros((2, 3072), np.uint8), [1, 2], labels_key="fine_labels"), 'no array "data" and list "labels"'),
        (batch(np.zeros((2, 3072), np.uint8), [1, 2])[:-2000], "fetch the file again"),
    ],
)
def test_fault_of_a_python_batch(tmp_path: Path, content: bytes, words: str) -> None:
    write(tmp_path, "py")
    (tmp_path / "data_batch_2").write_bytes(content)
    assert words in fault(tmp_path)


def test_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "bin", each=1)
    assert len(cifar("~", "test")[0]) == 1


def test_one_format_is_not_mixed_with_the_other(tmp_path: Path) -> None:
    """The binary batches come first, and then all of them."""
    made = write(tmp_path, "bin", each=2)
    write(tmp_path, "py", each=3)
    assert len(cifar_files.read(tmp_path, "train")[0]) == len(made)
