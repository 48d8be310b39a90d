"""Commands that train: run and study."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline.base.errors import BadInput, Interrupted, PacelineError
from paceline.base.lifeline import age_s
from paceline.cli.door import Json, console, fail, print_json, say, say_all

Task = Annotated[str, typer.Argument(metavar="TASK", help="A built-in task, or path/to/file.py[:Class].")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Settings and the task's parameters; `paceline list settings` explains each."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the results; otherwise a new one below runs/.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be run, and run nothing.")]

Detach = Annotated[
    bool,
    typer.Option("--detach", help="Submit to Slurm and do not wait; the same command, or report, picks it up later."),
]

_TOO_EARLY = "interrupted while the task was being looked at; no run was started"


def _stderr() -> Any:
    return console(stderr=True)


def _leave(jobs: list[int], hush: Callable[[], None]) -> bool:
    """Ctrl-C while a job waits or runs: without a terminal nobody can answer, and nothing is left behind."""
    hush()
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        return False
    numbers = ", ".join(map(str, jobs))
    try:
        return not typer.confirm(f"\ncancel Slurm job {numbers}? (no: it goes on without us)", default=True, err=True)
    except typer.Abort:  # Ctrl-C again: an answer too
        return False


def run(
    task: Task,
    words: Words = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    detach: Detach = False,
    out: Out = None,
) -> None:
    """Train one task under one set of settings, and say what happened on every rank."""
    from paceline.commands import run

    with run.warmed() as warm:
        _run(task, words, warm, as_json=as_json, dry_run=dry_run, detach=detach, out=out)


def _run(
    task: str, words: list[str] | None, warm: Any, *, as_json: bool, dry_run: bool, detach: bool, out: Path | None
) -> None:
    from paceline.commands import prepare, run, watching

    try:
        what = run.ready(task, prepare.words(words or []), out=out, began_t=time.time() - age_s(), warm=warm)
    except PacelineError as error:
        if as_json:  # a script gets its document whatever happens
            print_json(run.refused(task, words or [], error))
        raise
    except KeyboardInterrupt:
        raise Interrupted(_TOO_EARLY) from None
    if dry_run:
        spec = what.spec.plain()
        print_json({"schema": 1, "spec": spec, "plan": what.plan.plain()} if as_json else spec)
        from paceline.commands import show

        say_all([] if as_json else show.planned_run(what))
        return
    if detach:
        try:
            submitted = run.submit(what)
        except PacelineError as error:
            if as_json:
                print_json(run.refused(task, words or [], error))
            raise
        print_json(submitted) if as_json else say(run.said_of(submitted))
        raise typer.Exit(0 if submitted["outcome"] == "submitted" else 1)
    try:
        with watching.Single(_stderr, what) as watcher:
            record = run.start(what, tick=watcher.tick, leave=lambda jobs: _leave(jobs, watcher.hush), warm=warm)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; what the ranks wrote so far is in {what.run.path}") from None
    if as_json:
        print_json(record.plain)
    else:
        from paceline.commands import show  # rich and the tables: not before the ranks are started

        show.record(console(), record)
    if not record.completed:
        fail(f"{record.kind}: {record.why}")
        raise typer.Exit(1)


def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE.yaml|TASK|all",
            help="A shipped study, a study file, a task to sweep, or all shipped studies in turn.",
        ),
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=V1,V2]...", help="Settings; several values are swept.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="Runs of every cell, each with a seed of its own. Default 5.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A scaled-down version; of a shipped study, under two minutes on two cores.")
    ] = False,
    budget: Annotated[str | None, typer.Option("--budget", help="As many repeats as fit: 90s, 20m, 2h.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed cells again.")] = False,
    detach: Detach = False,
    out: Out = None,
    as_json: Json = False,
    dry_run: DryRun = False,
) -> None:
    """Run a matrix of settings with repeats, resuming where it stopped, and report what the figures show."""
    from paceline.commands import prepare, show, study

    typed = prepare.words(words or [])
    budget_s = study.seconds(budget) if budget is not None else None
    if name == "all":
        if budget is not None or detach:
            raise BadInput(
                f"study all: {'--budget' if budget else '--detach'} is for one study; use --repeats, or --quick"
            )
        _all(typed, repeats=repeats, quick=quick, retry=retry, out=out, as_json=as_json, dry_run=dry_run)
        return
    with study.warmed() as warm:
        try:
            what = study.ready(name, typed, repeats=repeats, quick=quick, out=out, warm=warm)
        except KeyboardInterrupt:
            raise Interrupted(_TOO_EARLY) from None
        if dry_run:
            if as_json:
                print_json(what.expanded.plan.model_dump(mode="json", by_alias=True))
            say_all([] if as_json else show.planned_study(what))
            return
        with study.hold(what):
            if detach:
                _submit(what, retry=retry, as_json=as_json)
                return
            what, reported = _go_through(what, warm, budget_s=budget_s, repeats=repeats, retry=retry)
    _tell(what, reported, as_json=as_json)


def _all(
    typed: dict[str, str],
    *,
    repeats: int | None,
    quick: bool,
    retry: bool,
    out: Path | None,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Every shipped study. One that fails, or that this machine cannot run, does not stop the others."""
    from paceline.commands import all_studies, show, study

    if dry_run:
        for name, what in all_studies.planned(typed, repeats=repeats, quick=quick, out=out):
            say_all(show.planned_study(what) if isinstance(what, study.Ready) else [f"{name}: {what.why}"])
        return

    def run(what: Any, warm: Any) -> Any:
        with study.hold(what):
            what, reported = _go_through(what, warm, budget_s=None, repeats=repeats, retry=retry)
        if not as_json:
            say(f"  {reported.findings.headline}\n  report: {what.folder.html}")
        return reported

    def begin(name: str, index: int, num: int) -> None:
        if not as_json:
            say(f"{name} ({index} of {num})")

    done = all_studies.go_through(typed, run, begin=begin, repeats=repeats, quick=quick, out=out)
    if as_json:
        print_json(done.plain())
    else:
        show.drawn(console(), done.tables())
        say(f"\nall studies: {done.page}")
    if failed := [one for one in done.told if one.num_failed]:
        fail(f"runs of {', '.join(one.name for one in failed)} failed; their reasons are in the reports")
        raise typer.Exit(1)


def _submit(what: Any, *, retry: bool, as_json: bool) -> None:
    from paceline.commands import study

    jobs = study.submit(what, retry=retry)
    said = f"{len(jobs)} jobs in the queue ({', '.join(map(str, jobs))}); the same command picks up what they bring"
    print_json({"schema": 1, "jobs": jobs, "study_dir": str(what.folder.path)}) if as_json else say(said)
    if refused := [record for records in what.done().values() for record in records if not record.completed]:
        fail(f"{len(refused)} runs failed; the first: {refused[0].why}")
        raise typer.Exit(1)


def _go_through(what: Any, warm: Any, *, budget_s: float | None, repeats: int | None, retry: bool) -> tuple[Any, Any]:
    """The study, as far as a budget lets it go, and what its records show."""
    from paceline.commands import study, watching

    try:
        what, look = study.look_ahead(what, budget_s=budget_s, most=repeats, warm=warm)
        with watching.Many(_stderr, what, look, retry=retry) as watcher:
            return what, study.start(
                what, watcher, retry=retry, deadline_s=budget_s, leave=lambda jobs: _leave(jobs, watcher.hush), warm=warm
            )  # fmt: skip
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing finished is lost: the same command goes on from here") from None


def _tell(what: Any, reported: Any, *, as_json: bool) -> None:
    from paceline.commands import show

    if as_json:
        print_json(show.plain(reported))
    else:
        show.findings(console(), reported)
        say(f"\nreport: {what.folder.html}")
    failed = [record for cell in reported.study.cells for _, record in cell.failed]
    if failed:
        fail(f"{len(failed)} of {reported.study.done} runs failed; their reasons are in the report")
        raise typer.Exit(1)
