"""`paceline profile`: a run with the setting `profile`, by a name of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli import training
from paceline.cli.door import Json


def profile(
    task: training.Task,
    words: training.Words = None,
    inference: Annotated[
        bool, typer.Option("--inference", help="The forward pass on test data instead of training steps.")
    ] = False,
    as_json: Json = False,
    out: training.Out = None,
) -> None:
    """Look into steps=N batches (default 100) of one process: time and memory by module and by operator."""
    from paceline.commands.profile import word

    training.run(task, [*(words or []), word(inference=inference)], as_json=as_json, out=out)
