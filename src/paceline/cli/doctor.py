"""The words of `paceline doctor`."""

from __future__ import annotations

import typer

from paceline.cli.door import Json, console, print_json, say


def doctor(as_json: Json = False) -> None:
    """Say what this machine can do and what it cannot, with the fix: launchers, backends, number formats, GPU, network.

    Exit code 0 when it can train at all, 1 otherwise.
    """
    from paceline.commands import show
    from paceline.commands.doctor.examine import HEAD, examine

    found = examine()
    if as_json:
        print_json(found.plain())
    else:
        screen = console()
        for group, rows in found.tables(screen.width):
            show.table(screen, group, HEAD, rows)
        say(found.verdict())
    raise typer.Exit(0 if found.why is None else 1)
