"""The parent's catalogue of built-in tasks says exactly what the worker's classes are; each of them trains."""

from __future__ import annotations

import pytest

from paceline.spec.tasks import BUILTIN
from paceline.worker.tasks.load import find, load_task

PARAMETERS = {"features": 512 * 32 + 32 + 64 + 32 * 20 + 20, "mnist-convnet": 4_266, "lenet": 50_692}


@pytest.mark.parametrize("name", BUILTIN)
def test_catalogue_and_class_agree(name: str) -> None:
    entry, found = BUILTIN[name], find(name)
    assert [(p.name, p.type, p.default) for p in entry.params] == [(p.name, p.type, p.default) for p in found.params]
    assert found.takes_data


@pytest.mark.parametrize("name", BUILTIN)
def test_models_have_the_reports_sizes(name: str) -> None:
    task = load_task(name, {param.name: param.default for param in BUILTIN[name].params}, None)
    assert sum(p.numel() for p in task.model().parameters()) == PARAMETERS[name]


def test_lenet_5_by_a_parameter() -> None:
    model = load_task("lenet", {"full": True}, None).model()
    assert sum(p.numel() for p in model.parameters()) == 61_706
