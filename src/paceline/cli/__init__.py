"""The command line: words in, exit code out. It owns stdout and the exit codes, and does nothing else itself.

0 done; 1 a run failed; 2 bad input; 130 interrupted. With --json nothing but one JSON document goes to stdout;
progress and errors go to stderr.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from paceline.base.errors import BadInput, PacelineError
from paceline.cli import cluster, data, doctor, profile, reading, training
from paceline.cli.door import fail, say

_RUN = "Examples: paceline run mnist-convnet on=1x2 epochs=1  |  paceline run my_task.py hidden=64 batch=128 --json"
_STUDY = (
    "Examples: paceline study mnist-scaling --quick  |  paceline study mnist-convnet on=1x1,1x2 batch=32,64 --repeats 5  |  "
    "paceline study my_study.yaml --budget 20m"
)
_PROFILE = "Examples: paceline profile mnist-convnet  |  paceline profile my_task.py hidden=64 steps=20 --inference"


def _version(wanted: bool) -> None:
    if wanted:
        from paceline.commands import version

        say(version.line())
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_version, is_eager=True, help="Say the versions of Paceline, torch and Python."),
]


def options(version: Version = False) -> None:
    """Options of the program itself."""


def program() -> typer.Typer:
    """Every command, attached: one line each."""
    app = typer.Typer(
        name="paceline",
        help="Find the fastest honest way to train a PyTorch model on the machines you have.\n\n"
        "Try: paceline run mnist-convnet on=1x2   then   paceline study mnist-scaling --quick",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    app.command(epilog=_RUN)(training.run)
    app.command(epilog=_STUDY)(training.study)
    app.command(epilog=_PROFILE)(profile.profile)
    app.command()(reading.report)
    app.command(name="list")(reading.list_)
    app.command()(doctor.doctor)
    sets = typer.Typer(help="Bring public data sets to a folder.", no_args_is_help=True)
    sets.command("fetch")(data.data_fetch)
    app.add_typer(sets, name="data")
    runs = typer.Typer(help="List, compare and remove what is on disk.", invoke_without_command=True)
    runs.callback()(reading.runs)
    runs.command("list")(reading.runs_list)
    runs.command("compare")(reading.runs_compare)
    runs.command("remove")(reading.runs_remove)
    app.add_typer(runs, name="runs")
    box = typer.Typer(help=cluster.HELP, no_args_is_help=True)
    for command in (cluster.up, cluster.down, cluster.status, cluster.cut, cluster.mend):
        box.command()(command)
    # What follows NODE is the command's own, options too.
    box.command(context_settings={"allow_interspersed_args": False})(cluster.on)
    app.add_typer(box, name="cluster")
    return app


def main() -> None:
    """Sentences for every error that is the user's; a traceback only for a defect of ours."""
    # Being asked to leave is being interrupted: the same clean way out, for every way of asking.
    # What was ignored before us stays ignored: that is what nohup asks for.
    for word in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(word) is not signal.SIG_IGN:
            signal.signal(word, signal.default_int_handler)
    # A character the terminal cannot show is no reason to stop; stderr is like this from the start.
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="backslashreplace")
    try:
        program()()
    except BadInput as error:
        for problem in error.problems:
            fail(problem)
        sys.exit(error.exit_code)
    except PacelineError as error:
        fail(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone (head): not an error
        sys.exit(0)
