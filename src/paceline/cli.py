"""The command line: words in, exit code out. It owns stdout and the exit codes, and does nothing else itself.

0 done; 1 a run failed; 2 bad input; 130 interrupted. With --json nothing but one JSON document goes to stdout;
progress and errors go to stderr.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.base.errors import BadInput, Interrupted, PacelineError

app = typer.Typer(
    name="paceline",
    help="Find the fastest honest way to train a PyTorch model on the machines you have.\n\n"
    "Try: paceline run mnist-convnet on=1x2   then   paceline study mnist-scaling --quick",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Bring public data sets to a folder.", no_args_is_help=True)
runs_app = typer.Typer(help="List, compare and remove what is on disk.", invoke_without_command=True)
app.add_typer(data_app, name="data")
app.add_typer(runs_app, name="runs")

Task = Annotated[str, typer.Argument(metavar="TASK", help="A built-in task, or path/to/file.py[:Class].")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Settings and the task's parameters; `paceline list settings` explains each."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the results; otherwise a new one below runs/.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be run, and run nothing.")]


def _console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    # A log or a pipe has no width of its own: wide enough that no table is cut, unless COLUMNS says otherwise.
    piped = not (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=shutil.get_terminal_size((140, 24)).columns if piped else None)


def _say(text: str) -> None:
    print(text)


def _say_all(lines: Iterable[str]) -> None:
    for line in lines:
        _say(line)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, allow_nan=False))


@app.command(
    epilog="Examples: paceline run mnist-convnet on=1x2 epochs=1  |  paceline run my_task.py hidden=64 batch=128 --json"
)
def run(task: Task, words: Words = None, as_json: Json = False, dry_run: DryRun = False, out: Out = None) -> None:
    """Train one task under one set of settings, and say what happened on every rank."""
    from paceline.commands import prepare, run, show, watching

    try:
        what = run.ready(task, prepare.words(words or []), out=out)
    except BadInput as error:
        if as_json:  # a script gets its document whatever happens
            _print_json(run.refused(task, words or [], error))
        raise
    if dry_run:
        spec = what.spec.plain()
        _print_json({"schema": 1, "spec": spec, "plan": what.plan.plain()} if as_json else spec)
        _say_all([] if as_json else show.planned_run(what))
        return
    try:
        with watching.Single(_console(stderr=True), what) as watcher:
            record = run.start(what, tick=watcher.tick)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; what the ranks wrote so far is in {what.run.path}") from None
    if as_json:
        _print_json(record.plain)
    else:
        show.record(_console(), record)
    if not record.completed:
        _fail(f"{record.kind}: {record.why}")
        raise typer.Exit(1)


@app.command(
    epilog="Examples: paceline study mnist-scaling --quick  |  paceline study mnist-convnet on=1x1,1x2 batch=32,64 --repeats 5  |  "
    "paceline study my_study.yaml --budget 20m"
)
def study(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE.yaml|TASK", help="A shipped study, a study file, or a task to sweep.")
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=V1,V2]...", help="Settings; several values are swept.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="Runs of every cell, each with a seed of its own. Default 5.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A scaled-down version, under two minutes on two cores.")
    ] = False,
    budget: Annotated[str | None, typer.Option("--budget", help="As many repeats as fit: 90s, 20m, 2h.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed cells again.")] = False,
    out: Out = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Run a matrix of settings with repeats, resuming where it stopped, and report what the figures show."""
    from paceline.commands import prepare, show, study, watching

    typed = prepare.words(words or [])
    budget_s = study.seconds(budget) if budget is not None else None
    what = study.ready(name, typed, repeats=repeats, quick=quick, out=out)
    if dry_run:
        if as_json:
            _print_json(what.expanded.plan.model_dump(mode="json", by_alias=True))
        _say_all([] if as_json else show.planned_study(what))
        return
    console = _console(stderr=True)
    with study.hold(what):
        try:
            what, look = study.look_ahead(what, budget_s=budget_s, most=repeats)
            with watching.Many(console, what, look, retry=retry) as watcher:
                reported = study.start(what, watcher, retry=retry, deadline_s=budget_s)
        except KeyboardInterrupt:
            raise Interrupted("interrupted; nothing finished is lost: the same command goes on from here") from None
    if as_json:
        _print_json(show.plain(reported))
    else:
        show.findings(_console(), reported)
        _say(f"\nreport: {what.folder.html}")
    failed = [record for cell in reported.study.cells for _, record in cell.failed]
    if failed:
        _fail(f"{len(failed)} of {reported.study.done} runs failed; their reasons are in the report")
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A study, a run, or a folder of runs.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write Markdown tables.")] = None,
    latex: Annotated[Path | None, typer.Option("--latex", help="Write LaTeX (booktabs) tables.")] = None,
    samples: Annotated[Path | None, typer.Option("--samples", help="Write every sample as .csv or .parquet.")] = None,
    as_json: Json = False,
) -> None:
    """Say what the runs in a folder show: in the terminal, or as HTML, Markdown, LaTeX, JSON, CSV, Parquet."""
    from paceline.commands import report, show

    reported = report.read(folder)
    writers = (
        (html, report.write_html),
        (markdown, report.write_markdown),
        (latex, report.write_latex),
        (samples, report.write_samples),
    )
    for path, write in writers:
        if path is not None:
            write(reported, path)
    if as_json:
        _print_json(show.plain(reported))
    elif report.is_run(folder):
        show.record(_console(), reported.study.cells[0].records[0][1])
    else:
        show.findings(_console(), reported)
    for path, _ in writers:
        if path is not None and not as_json:
            _say(f"wrote {path}")


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(metavar="tasks|settings|studies|launchers|schema", help="What to list.")],
    as_json: Json = False,
) -> None:
    """Explain every task, setting, study or launcher in a line; `schema` is the JSON schema of study files, for editors."""
    from paceline.base.names import unknown
    from paceline.commands import listing, show

    if what == "schema":
        _print_json(listing.schema())
        return
    lists = {
        "tasks": listing.tasks,
        "settings": listing.settings,
        "studies": listing.studies,
        "launchers": listing.launchers,
    }
    if what not in lists:
        raise BadInput(unknown("list", what, [*lists, "schema"]))
    head, rows = lists[what]()
    if as_json:
        _print_json({"schema": 1, what: [dict(zip(head, row, strict=True)) for row in rows]})
    else:
        show.table(_console(), what, head, rows)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist")],
    to: Annotated[str | None, typer.Option("--to", help="Folder to put it in; ./data otherwise.")] = None,
) -> None:
    """Download a public data set, checking every file."""
    from paceline.commands import data

    data.fetch(name, to, _say)


Root = Annotated[Path, typer.Option("--in", help="Where to look.")]


@runs_app.callback()
def runs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        runs_list()


@runs_app.command("list")
def runs_list(root: Root = Path("runs"), as_json: Json = False) -> None:
    """Every finished run on disk, a line each."""
    from paceline.commands import runs, show

    rows = [runs.summary(record, root) for record in runs.records(root)]
    if as_json:
        _print_json({"schema": 1, "runs": rows})
    else:
        show.table(_console(), f"{len(rows)} runs in {root}", *runs.shown(rows))


@runs_app.command("compare")
def runs_compare(a: Path, b: Path, as_json: Json = False) -> None:
    """Two runs side by side: what differs in what was asked, and what was measured."""
    from paceline.commands import runs, show

    found = runs.compare(a, b)
    if as_json:
        _print_json(found)
        return
    settings = [[name, str(x), str(y)] for name, (x, y) in found["settings"].items()]
    figures = [[name, *("" if v is None else f"{v:.6g}" for v in pair)] for name, pair in found["metrics"].items()]
    show.table(_console(), "settings that differ", ["setting", str(a), str(b)], settings)
    show.table(_console(), "figures", ["metric", str(a), str(b)], figures)
    _say(f"weights: {'bitwise the same' if found['same_weights'] else 'different'}; {found['verdict']}")


@runs_app.command("remove")
def runs_remove(
    names: Annotated[list[str], typer.Argument(help="Folders of runs or studies.")],
    root: Root = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove runs or studies from disk, after asking."""
    from paceline.commands import runs

    paths = runs.removable(names, root)
    if not yes and not typer.confirm(f"remove {len(paths)} folders: {', '.join(map(str, paths))}?"):
        raise Interrupted("nothing was removed")
    runs.remove(paths)
    _say(f"removed {len(paths)}")


def _fail(text: str) -> None:
    print(f"paceline: {text}", file=sys.stderr)


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
        app()
    except BadInput as error:
        for problem in error.problems:
            _fail(problem)
        sys.exit(error.exit_code)
    except PacelineError as error:
        _fail(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone (head): not an error
        sys.exit(0)
