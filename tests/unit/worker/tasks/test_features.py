"""Report A's task: the generated data has the stated best accuracy; the user's files are checked before training."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from paceline.base.errors import BadInput
from paceline.spec.tasks import BUILTIN
from paceline.worker.tasks.features import MEAN_LENGTH, Features, means

PATHS = {
    "train_x": "train_data/train_x.npy", "train_y": "train_data/train_y.npy",
    "test_x": "test_data/test_x.npy", "test_y": "test_data/test_y.npy",
}  # fmt: skip


def arrays() -> dict[str, Any]:
    rng = np.random.Generator(np.random.PCG64(0))
    return {
        "train_x": rng.standard_normal((12, 5)), "train_y": np.arange(12) % 3,
        "test_x": rng.standard_normal((4, 5)), "test_y": np.array([0, 1, 2, 0]),
    }  # fmt: skip


def write(folder: Path, **changed: Any) -> str:
    for name, array in {**arrays(), **changed}.items():
        path = folder / PATHS[name]
        path.parent.mkdir(exist_ok=True)
        if isinstance(array, bytes):
            path.write_bytes(array)
        elif array is not None:
            np.save(path, array, allow_pickle=True)
    return str(folder)


def best_accuracy() -> float:
    value, _ = integrate.quad(lambda x: stats.norm.pdf(x - MEAN_LENGTH) * stats.norm.cdf(x) ** 19, -12, 20)
    return value


def test_best_possible_accuracy_is_86_percent() -> None:
    assert best_accuracy() == pytest.approx(0.86, abs=0.0005)


def test_ideal_classifier_reaches_it() -> None:
    x, y = Features().test_data()
    accuracy = np.mean((x.numpy() @ means().T).argmax(axis=1) == y.numpy())
    standard_error = (0.86 * 0.14 / len(y)) ** 0.5
    assert abs(accuracy - best_accuracy()) < 3 * standard_error


def test_means_are_equidistant_and_noise_is_unit() -> None:
    centres = means().astype(np.float64)
    assert centres @ centres.T == pytest.approx(MEAN_LENGTH**2 * np.eye(20), abs=1e-5)
    x, y = Features(num_test=4_000).test_data()
    noise = x.numpy() - means()[y.numpy()]
    assert noise.std() == pytest.approx(1, abs=0.005)
    assert abs(noise.mean()) < 0.005


def test_generated_data_is_balanced_and_fixed() -> None:
    torch.manual_seed(1)
    x, y = Features(num_train=1_000).train_data()
    torch.manual_seed(2)
    np.random.seed(2)
    again = Features(num_train=1_000).train_data()
    assert torch.equal(x, again[0])
    assert torch.equal(y, again[1])
    assert (x.dtype, y.dtype, tuple(x.shape)) == (torch.float32, torch.int64, (1_000, 512))
    assert y.bincount().tolist() == [50] * 20
    assert y[:20].sort().values.tolist() != list(range(20))  # in random order, not class by class


def test_num_train_leaves_the_test_set_alone() -> None:
    small, large = (Features(num_train=num, num_test=50).test_data()[0] for num in (10, 1_000))
    assert torch.equal(small, large)
    assert not torch.equal(Features(num_train=50).train_data()[0], small)


def test_model_is_report_a() -> None:
    layers = [type(layer).__name__ for layer in Features().model().children()]
    assert layers == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert Features(hidden=7).model()(torch.zeros(3, 512)).shape == (3, 20)
    assert sum(parameter.numel() for parameter in Features().model().parameters()) == 512 * 32 + 32 + 64 + 32 * 20 + 20


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", ">f8"])
@pytest.mark.parametrize("labels", ["<i8", ">i4", "u1"])
def test_reads_the_users_files(tmp_path: Path, dtype: str, labels: str) -> None:
    wanted = arrays()
    data = write(
        tmp_path,
        train_x=np.asfortranarray(wanted["train_x"].astype(dtype)),
        train_y=wanted["train_y"].astype(labels),
    )
    task = Features(data=data)
    x, y = task.train_data()
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert x.numpy() == pytest.approx(wanted["train_x"].astype(dtype).astype("f4"))
    assert y.tolist() == wanted["train_y"].tolist()
    assert task.test_data()[1].tolist() == [0, 1, 2, 0]
    assert task.model()(torch.zeros(2, 5)).shape == (2, 3)


class Trap:
    """Unpickling this would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.path), "w")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    with pytest.raises(BadInput, match="pickled"):
        Features(data=write(tmp_path, train_x=trap)).train_data()
    assert not (tmp_path / "sprung").exists()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


NAN = np.ones((12, 5))
NAN[7, 3] = np.nan
WIDE = npy(np.ones((12, 5)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"train_x": None}, ["train_x.npy", "no such file"]),
        ({"test_y": None}, ["test_y.npy", "no such file"]),
        ({"train_x": b""}, ["train_x.npy", "not an .npy file"]),
        ({"train_x": b"PK\x03\x04 zip"}, ["not an .npy file"]),
        ({"train_x": WIDE[:-1]}, ["truncated", f"expected {len(WIDE)} bytes, found {len(WIDE) - 1}"]),
        ({"train_x": WIDE + b"!"}, ["bytes after the end"]),
        ({"train_x": WIDE[:7]}, ["not a readable .npy file"]),
        ({"train_x": WIDE[:40]}, ["not a readable .npy file"]),
        ({"train_x": b"\x93NUMPY\x09\x00" + WIDE[8:]}, ["version 9.0"]),
        ({"train_x": WIDE.replace(b"(12, 5)", b"(12,-5)")}, ["train_x.npy"]),
        ({"train_y": np.array([None] * 12, dtype=object)}, ["pickled Python objects"]),
        ({"train_x": np.ones((12, 5), dtype=int)}, ["int64", "floating-point"]),
        ({"train_x": np.ones((12, 5), dtype=complex)}, ["complex128", "floating-point"]),
        ({"train_x": np.ones(12)}, ["(12,)", "2 dimensions"]),
        ({"train_x": np.ones((0, 5)), "train_y": np.ones(0, dtype=int)}, ["(0, 5)", "nothing"]),
        ({"train_y": np.ones((12, 1), dtype=int)}, ["(12, 1)", "1 dimension"]),
        ({"train_y": np.arange(11) % 3}, ["12 samples", "11 labels"]),
        ({"test_x": np.ones((4, 6))}, ["5 wide", "test_x 6"]),
        ({"train_x": NAN}, ["sample 7", "NaN"]),
        ({"train_x": np.full((12, 5), 1e300)}, ["sample 0", "too large"]),
        ({"test_x": np.full((4, 5), np.inf)}, ["test_x.npy", "infinite"]),
        ({"train_y": np.arange(12) % 3 - 1}, ["label -1 at position 0"]),
        ({"train_y": np.full(12, 2**64 - 1, dtype=np.uint64)}, ["too large"]),
        ({"train_y": np.full(12, 10**9)}, ["label 1000000000", "number the classes from 0"]),
        ({"train_y": np.zeros(12)}, ["float64", "whole numbers"]),
        ({"train_y": np.zeros(12, dtype=bool)}, ["bool", "whole numbers"]),
        ({"test_y": np.array([0, 1, 2, 5])}, ["label 5", "no training sample"]),
    ],
)
def test_fault_is_one_sentence(tmp_path: Path, changed: dict[str, Any], words: list[str]) -> None:
    task = Features(data=write(tmp_path, **changed))
    for call in (task.model, task.train_data, task.test_data):
        with pytest.raises(BadInput) as caught:
            call()
        (sentence,) = caught.value.problems
        assert "\n" not in sentence
        for word in [str(tmp_path), *words]:
            assert word in sentence


def test_folder_missing_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, words in {"none": "no such folder", "file": "is a file; name the folder"}.items():
        with pytest.raises(BadInput, match=words):
            Features(data=str(tmp_path / name)).train_data()


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(BadInput) as caught:
        Features(data="somewhere", hidden=0, num_train=-1)
    assert len(caught.value.problems) == 3
    with pytest.raises(BadInput, match="num_train and num_test shape generated data only; data=somewhere"):
        Features(data="somewhere", num_test=5)


def test_catalogue_says_the_same_defaults() -> None:
    """The parent sends every catalogued value, so a default that differs would look like one the user gave."""
    parameters = inspect.signature(Features).parameters
    own = {name: parameter.default for name, parameter in parameters.items() if name != "data"}
    assert own == {param.name: param.default for param in BUILTIN["features"].params}


def test_the_activation_is_a_choice() -> None:
    for name, kind in (("relu", "ReLU"), ("tanh", "Tanh"), ("sigmoid", "Sigmoid"), ("gelu", "GELU")):
        assert type(dict(Features(activation=name).model().named_children())["activation"]).__name__ == kind
    with pytest.raises(
        BadInput, match=r"unknown activation 'gelo'; did you mean 'gelu'\? \(known: relu, tanh, sigmoid, gelu\)"
    ):
        Features(activation="gelo")
    with pytest.raises(BadInput, match=r"unknown loader 'list' \(known: tensors, dataset\)"):
        Features(loader="list")


def test_sample_by_sample_is_the_same_data() -> None:
    x, y = Features(num_train=5).train_data()
    samples = Features(num_train=5, loader="dataset").train_data()
    assert len(samples) == 5
    assert all(torch.equal(a, x[i]) and torch.equal(b, y[i]) for i, (a, b) in enumerate(samples))
    assert not hasattr(samples, "__getitems__"), "whole batches at once would not be what report A did"


def passes(model: torch.nn.Module, x: torch.Tensor) -> int:
    """How often the extra layer was applied."""
    calls: list[int] = []
    hook = model.get_submodule("again").register_forward_hook(lambda *_: calls.append(1))
    model(x)
    hook.remove()
    return len(calls)


def test_early_exit_takes_both_branches() -> None:
    torch.manual_seed(0)
    model = Features(early_exit=True).model().eval()
    assert passes(model, torch.zeros(4, 512)) == 3
    assert passes(model, 1_000 * torch.randn(4, 512)) == 1
    assert model(torch.zeros(4, 512)).shape == (4, 20)


def test_early_exit_leaves_no_parameter_without_a_gradient() -> None:
    """Whichever way a batch goes: a rank that lacks a gradient would leave the others waiting."""
    torch.manual_seed(0)
    for scale in (0.0, 1_000.0):
        model = Features(early_exit=True, hidden=8).model().eval()
        model(scale * torch.randn(4, 512)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_default_model_is_as_it_was() -> None:
    names = ["linear1.weight", "linear1.bias", "norm.weight", "norm.bias", "linear2.weight", "linear2.bias"]
    assert [name for name, _ in Features().model().named_parameters()] == names
    extra = Features(early_exit=True).model()
    assert {name for name, _ in extra.named_parameters()} == {*names, "again.weight", "again.bias"}
