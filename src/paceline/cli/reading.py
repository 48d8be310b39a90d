"""Commands that read what is on disk, or what there is to choose from: report, list, runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.base.errors import BadInput, Interrupted
from paceline.cli.door import Json, console, print_json, say


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
        print_json(show.plain(reported))
    elif report.is_run(folder):
        show.record(console(), reported.study.cells[0].records[0][1])
    else:
        show.findings(console(), reported)
    for path, _ in writers:
        if path is not None and not as_json:
            say(f"wrote {path}")


def list_(
    what: Annotated[str, typer.Argument(metavar="tasks|settings|studies|launchers|schema", help="What to list.")],
    as_json: Json = False,
) -> None:
    """Explain every task, setting, study or launcher in a line; `schema` is the JSON schema of study files, for editors."""
    from paceline.base.names import unknown
    from paceline.commands import listing, show

    if what == "schema":
        print_json(listing.schema())
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
        print_json({"schema": 1, what: [dict(zip(head, row, strict=True)) for row in rows]})
    else:
        show.table(console(), what, head, rows)


Root = Annotated[Path, typer.Option("--in", help="Where to look.")]


def runs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        runs_list()


def runs_list(root: Root = Path("runs"), as_json: Json = False) -> None:
    """Every finished run on disk, a line each, with the settings in which they differ."""
    from paceline.commands import runs, show

    rows = runs.summaries(runs.records(root), root)
    if as_json:
        print_json({"schema": 1, "runs": rows})
    else:
        show.table(console(), f"{len(rows)} runs in {root}", *runs.shown(rows))


def runs_compare(a: Path, b: Path, as_json: Json = False) -> None:
    """Two runs side by side: what differs in what was asked, and what was measured."""
    from paceline.commands import runs, show

    comparison = runs.compare(a, b)
    if as_json:
        print_json(comparison)
        return
    settings = [[name, str(x), str(y)] for name, (x, y) in comparison["settings"].items()]
    figures = [[name, *("" if v is None else f"{v:.6g}" for v in pair)] for name, pair in comparison["metrics"].items()]
    show.table(console(), "settings that differ", ["setting", str(a), str(b)], settings)
    show.table(console(), "figures", ["metric", str(a), str(b)], figures)
    say(f"weights: {'bitwise the same' if comparison['same_weights'] else 'different'}; {comparison['verdict']}")


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
    say(f"removed {len(paths)}")
