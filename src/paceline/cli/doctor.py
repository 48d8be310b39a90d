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

    examined = examine()
    if as_json:
        print_json(examined.plain())
    else:
        screen = console()
        for group, rows in examined.tables(screen.width):
            show.table(screen, group, HEAD, rows)
        say(examined.verdict())
    raise typer.Exit(0 if examined.why is None else 1)
