"""An error is said to come from the user's line: of the task's files first, then of any package that is not torch, Python or ours."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from paceline.base.blame import users_line
from paceline.base.errors import RunFailed
from paceline.worker.transform.graph import Exported
from paceline.worker.transform.tracing import trace

TASK = """\
import torch


class Wrapped(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def calls(function):
    return function()
"""
BESIDE = """\
import torch


class Branches(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # more than eighty characters, which no sentence about a run has room for, here
            x = -x
        return x
"""
QUOTED = "`if x.sum() > 0: # more than eighty characters, which no sentence about a run has...`"
PLACE = f" (parts/nets.py, line 6, in forward: {QUOTED})"


def loaded(path: Path, text: str) -> ModuleType:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"made_for_blame_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def task(tmp_path: Path) -> tuple[Path, Any, Callable[[Callable[[], Any]], Any]]:
    """(the file, a model whose part in a module beside it branches on a number, a function of the file that calls another)"""
    file = tmp_path / "task" / "task.py"
    module = loaded(file, TASK)
    model = module.Wrapped(loaded(file.parent / "parts" / "nets.py", BESIDE).Branches())
    return file, model, module.calls


def caught(function: Callable[[], Any]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_innermost_of_the_tasks_own_lines(task: Any) -> None:
    file, _, calls = task
    error = caught(lambda: calls(lambda: int("no number")))
    assert users_line(error, file) == " (task.py, line 14, in calls: `return function()`)", "not the test's, further in"
    assert "test_blame.py" in users_line(error, file.parent / "elsewhere" / "other.py")
    assert "test_blame.py" in users_line(error, None)


def test_lines_of_torch_of_python_and_ours_are_nobodys(task: Any) -> None:
    from paceline.base.files import read_json

    nowhere = caught(lambda: read_json(Path("/nowhere"))).with_traceback(None)
    assert users_line(nowhere, task[0]) == ""
    error = caught(lambda: torch.nn.Linear(2, 3)(torch.ones(7)))
    assert error.__traceback__ is not None
    inside = error.with_traceback(error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next)
    assert users_line(inside, task[0]) == "", "torch's own lines alone"


def test_what_it_was_raised_from_is_looked_at(task: Any) -> None:
    file, model, _ = task
    inner = caught(lambda: model(None))

    def again() -> None:
        raise RuntimeError("in other words") from inner

    assert users_line(caught(again), file) == PLACE


def test_installed_packages_below_the_tasks_folder_are_not_the_tasks(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project often holds its environment."""
    file, model, _ = task
    monkeypatch.setattr(sys, "prefix", str(file.parent / "parts"))
    assert users_line(caught(lambda: model(None)), file) == " (task.py, line 10, in forward: `return self.inner(x)`)"


def test_what_torchs_text_names_counts(task: Any) -> None:
    """Its compiler reads a function without running it, so there is no traceback through it."""
    file, _, _ = task
    text = f'Data-dependent branching\n\nfrom user code:\n  File "{file.parent}/parts/nets.py", line 6, in forward\n    if x'
    assert users_line(RuntimeError(text), file) == PLACE


@pytest.mark.filterwarnings("ignore")
def test_a_failed_trace_names_the_users_line(task: Any) -> None:
    file, model, _ = task
    batch = torch.ones(4, 2)
    assert users_line(caught(lambda: trace(lambda state: model(state["x"]), {"x": batch})), file) == PLACE
    with pytest.raises(RunFailed, match="graph=export: torch cannot export this model") as failed:
        Exported(model, contextlib.nullcontext, file)(batch)
    assert PLACE in failed.value.why
    torch._dynamo.reset()
    error = caught(lambda: torch.compile(model, backend="eager", fullgraph=True)(batch))
    assert users_line(error, file) == PLACE
