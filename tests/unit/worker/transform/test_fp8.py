"""Which layers are put in fp8, that scores are taken without it, and that nothing is called fp8 that is not.

torchao itself needs a GPU: tests/gpu/test_precision.py. Here a stand-in replaces layers as it does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.transform import fp8
from paceline.worker.transform.flow import Flow
from paceline.worker.transform.fp8 import Float8, fits
from paceline.worker.transform.precision import Arithmetic, word

CPU = torch.device("cpu")


class Fast(torch.nn.Linear):
    """Rounds its outputs, as fp8 would; the parameters are those of the layer it came from."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.round(super().forward(input))


def stand_in(module: torch.nn.Module, choose: Callable[[torch.nn.Module, str], bool]) -> torch.nn.Module:
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):
            if isinstance(child, torch.nn.Linear) and choose(child, name):
                fast = Fast(child.in_features, child.out_features)
                fast.weight, fast.bias = child.weight, child.bias
                setattr(parent, name, fast)
    return module


class Own(torch.nn.Linear):
    """A layer of the user's, with a forward of its own."""


def whole(model: torch.nn.Module) -> TaskModule:
    return TaskModule(model, Task("t", lambda: model, list, list, usual_forward, usual_loss, usual_score))


def network() -> TaskModule:
    torch.manual_seed(0)
    layers = torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 20), Own(20, 16), torch.nn.Linear(16, 16)
    return whole(torch.nn.Sequential(*layers))


def test_layers_whose_sizes_fit_and_no_others() -> None:
    net = network()
    float8 = Float8(net, stand_in)
    assert [type(layer).__name__ for layer in net.model] == ["Fast", "ReLU", "Linear", "Own", "Fast"]  # pyright: ignore
    assert not fits(Own(16, 16)) and not fits(torch.nn.Linear(16, 20)) and not fits(torch.nn.Linear(8, 16))
    assert float8.read_back() == {"linear_layers": 4, "converted": 2, "ran": None, "share": None}


def test_scores_are_those_of_plain_layers_with_the_same_weights() -> None:
    net, batch = network(), (torch.randn(6, 32), torch.zeros(6))
    names, before = list(net.state_dict()), net(batch)
    float8 = Float8(net, stand_in)
    rounded = net(batch)
    net.model.eval()
    numbers = Arithmetic(Spec(task="features", precision="fp8"), CPU, None, float8=float8)
    with numbers.evaluation():
        assert net(batch).equal(before) and not net.model[0].training  # pyright: ignore
    assert not rounded.equal(before) and net(batch).equal(rounded), "and back in their places"
    assert list(net.state_dict()) == names, "weights that any plain model can load"


def test_what_took_part_is_counted_and_is_the_word() -> None:
    net = network()
    float8 = Float8(net, stand_in)
    numbers = Arithmetic(Spec(task="features", precision="fp8"), CPU, Flow(net.model), float8=float8)
    with numbers.autocast():
        outputs = net((torch.randn(6, 32), torch.zeros(6)))
    numbers.look(outputs)
    assert numbers.read_back()["fp8"] == {"linear_layers": 4, "converted": 2, "ran": 2, "share": 0.5}
    assert word(["float32"], numbers.computed, fp8=True) == "fp8"


def test_a_model_that_is_one_layer() -> None:
    net = whole(torch.nn.Linear(16, 16))
    plain = net.model
    float8 = Float8(net, stand_in)
    assert isinstance(net.model, Fast) and float8.read_back()["converted"] == 1
    with float8.plainly():
        assert net.model is plain
    assert isinstance(net.model, Fast)


def test_a_layer_in_two_places_is_replaced_in_both() -> None:
    layer = torch.nn.Linear(16, 16)
    net = whole(torch.nn.Sequential(layer, layer))
    float8 = Float8(net, stand_in)
    with float8.plainly():
        assert [module is layer for module in net.model] == [True, True]  # pyright: ignore
    assert [type(module) for module in net.model] == [Fast, Fast]  # pyright: ignore


@pytest.mark.parametrize("called", [True, False])
def test_nothing_in_fp8_is_a_mismatch(called: bool) -> None:
    """No layer that fits; or one that the task's forward never calls."""
    net = whole(
        torch.nn.Sequential(torch.nn.Linear(10, 10)) if called else torch.nn.ModuleList([torch.nn.Linear(16, 16)])
    )
    float8 = Float8(net, stand_in)
    numbers = Arithmetic(Spec(task="features", precision="fp8"), CPU, Flow(net.model), float8=float8)
    with numbers.autocast():
        outputs = net((torch.randn(2, 10), None)) if called else torch.ones(1, dtype=torch.bfloat16)
    with pytest.raises(RunFailed, match=rf"1 linear layers {0 if called else 1} are in fp8, and none") as caught:
        numbers.look(outputs)
    assert caught.value.kind == "mismatch"


def test_a_rank_without_such_a_gpu_fails_in_one_sentence() -> None:
    with pytest.raises(RunFailed, match=r"fp8, which needs a GPU of capability 8\.9 or more; the rank has none"):
        fp8.convert(network(), CPU)


def test_without_torchao_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))
    with pytest.raises(RunFailed, match=r"cannot be imported .*: pip install 'paceline\[fp8\]'"):
        fp8.convert(network(), torch.device("cuda"))
