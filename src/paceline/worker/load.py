"""`paceline.load(run_dir)`: the trained model, in the user's own process. It builds the task's model and fills in the weights."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import torch

from paceline.base.errors import BadInput
from paceline.base.files import read_json
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.worker.resilience.weights import restore
from paceline.worker.tasks.load import load_task
from paceline.worker.transform.precision import dtype


def load(run_dir: str | PathLike[str]) -> torch.nn.Module:
    """The model as the run left it, in evaluation mode, on the CPU."""
    run = RunDir(Path(run_dir))
    if not run.weights.exists():
        raise BadInput(f"{run.path}: no trained weights in it (a run that completed leaves {run.weights.name})")
    if not run.finished or read_json(run.result).get("outcome") != "completed":
        raise BadInput(f"{run.path}: the run did not complete, so its weights are no result")
    spec = Spec.model_validate(read_json(run.spec))
    model = load_task(spec.task, spec.params, spec.data).model().to(dtype(spec))
    restore(model, run.weights)
    return model.eval()
