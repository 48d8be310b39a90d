"""Commands that bring data: data fetch."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli.door import say


def data_fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist or cifar10")],
    to: Annotated[str | None, typer.Option("--to", help="Folder to put it in; ./data otherwise.")] = None,
) -> None:
    """Download a public data set, checking every file."""
    from paceline.commands import data

    data.fetch(name, to, say)
