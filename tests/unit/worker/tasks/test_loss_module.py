"""A loss that is a module, with tensors that are no parameters: they go where the model goes, and fit what it returns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.worker.tasks.loss_module import ATTACHED, attach, with_loss_module

WEIGHTS = [1.0, 2.0, 9.0]


@pytest.mark.parametrize("held", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("returned", [torch.float32, torch.float64])
def test_weights_of_classes_are_a_part_of_the_model_and_fit_its_outputs(
    held: torch.dtype, returned: torch.dtype
) -> None:
    hooks = with_loss_module({"loss": nn.CrossEntropyLoss(weight=torch.tensor(WEIGHTS))})
    model = nn.Sequential(nn.Linear(2, 3))
    attach(model, hooks["loss_module"], "t")
    model.to(held)
    assert model.state_dict()[f"{ATTACHED}.weight"].dtype == held
    outputs, target = torch.randn(4, 3, dtype=returned), torch.tensor([0, 2, 1, 2])
    wanted = nn.functional.cross_entropy(outputs, target, weight=torch.tensor(WEIGHTS, dtype=returned))
    assert float(hooks["loss"](outputs, (None, target))) == pytest.approx(float(wanted), rel=1e-12)


def test_a_criterion_without_tensors_is_no_part_of_the_model() -> None:
    assert with_loss_module({"loss": nn.CrossEntropyLoss()})["loss_module"] is None
