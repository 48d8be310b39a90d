"""The parent's catalogue of built-in tasks says exactly what the worker's classes are; each of them trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from paceline.spec.settings import Settings
from paceline.spec.tasks import BUILTIN
from paceline.worker.tasks.load import find, load_task

PARAMETERS = {
    "features": 512 * 32 + 32 + 64 + 32 * 20 + 20, "mnist-convnet": 4_266, "lenet": 50_692, "cifar-cnn": 620_810,
    "conv-stack": 12_650, "transformer": 470_528, "recommender": 4 * 16_000 + 68 * 64 + 64 + 64 * 2 + 2,
}  # fmt: skip


@pytest.mark.parametrize("name", BUILTIN)
def test_catalogue_and_class_agree(name: str) -> None:
    entry, found = BUILTIN[name], find(name)
    assert [(p.name, p.type, p.default) for p in entry.params] == [(p.name, p.type, p.default) for p in found.params]
    assert found.takes_data
    assert entry.tensor_plan == callable(getattr(found.made, "tensor_plan", None))
    model = load_task(name, {param.name: param.default for param in entry.params}, None).model()
    assert entry.tables == any(isinstance(module, torch.nn.Embedding) for module in model.modules())


@pytest.mark.parametrize("name", BUILTIN)
def test_models_have_the_reports_sizes(name: str) -> None:
    task = load_task(name, {param.name: param.default for param in BUILTIN[name].params}, None)
    assert sum(p.numel() for p in task.model().parameters()) == PARAMETERS[name]


def test_lenet_5_by_a_parameter() -> None:
    model = load_task("lenet", {"full": True}, None).model()
    assert sum(p.numel() for p in model.parameters()) == 61_706


@pytest.mark.parametrize("name", BUILTIN)
def test_the_catalogue_states_the_size_where_it_states_one(name: str) -> None:
    stated = re.findall(r"([\d,]+) parameters", BUILTIN[name].about)
    assert stated in ([], [f"{PARAMETERS[name]:,}"])


@pytest.mark.parametrize("name", BUILTIN)
def test_blocks_and_plans_are_of_the_model(name: str) -> None:
    """What a task says of its own model holds: units do not overlap, a plan names modules that are there."""
    task = load_task(name, {param.name: param.default for param in BUILTIN[name].params}, None)
    model = task.model()
    units = task.units(model) if task.units else []
    inside = [id(module) for unit in units for module in unit.modules()]
    assert len(inside) == len(set(inside)) and set(inside) <= {id(module) for module in model.modules()}
    for path in task.tensor_plan(model) if task.tensor_plan else []:
        model.get_submodule(path)


@pytest.mark.parametrize("name", BUILTIN)
def test_defaults_are_settings(name: str) -> None:
    Settings.model_validate(dict(BUILTIN[name].defaults))


@pytest.mark.parametrize("name", BUILTIN)
def test_every_task_and_parameter_has_its_words(name: str) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text()
    section = page.partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
    assert section, f"docs/tasks.md has no section about {name}"
    for param in BUILTIN[name].params:
        assert re.search(rf"`{param.name}[`=]|{param.name}=", section), f"{name}: nothing about {param.name}"
    assert f"| {PARAMETERS[name]:,} |" in page
