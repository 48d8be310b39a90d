"""What a person sees on the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from paceline.records.findings import StudyFindings
from paceline.records.gather import refusal
from paceline.records.record import Record
from paceline.records.study import StudyRecord
from paceline.report import terminal


def _console(width: int = 160) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_study_answers_first(found: StudyFindings) -> None:
    console = _console()
    terminal.print_study(console, found)
    text = _text(console)
    assert text.index("Use 2x2") < text.index("Cells") < text.index("Comparisons")
    assert "186 s" in text and "97.77 %" in text  # the report's figures beside ours
    assert "evaluated 2000 of 2000" in text and "Example CPU" in text and "commit 0123456789ab" in text
    assert "out of memory: <b>4 GiB</b>" in text


def test_markup_in_user_text_is_text(found: StudyFindings) -> None:
    console = _console()
    cell = replace(found.cells[0], label="[red]z")
    terminal.print_study(console, replace(found, headline="[red]x[/red]", notes=("[bold]y",), cells=(cell,)))
    for text in ("[red]x[/red]", "[bold]y", "[red]z"):
        assert text in _text(console)


def test_a_run(scaling: StudyRecord) -> None:
    console = _console()
    terminal.print_run(console, scaling.cells[1].records[0][1])
    text = _text(console)
    assert "completed  mnist-convnet on 1x2, seed 100" in text and "evaluated 2000 of 2000" in text
    assert "own test accuracy" in text and "bench-1" in text
    for word in ("startup", "forward", "other", "wall", "throughput", "memory", "time to target", "run directory"):
        assert word in text


def test_a_failed_run_says_why(scaling: StudyRecord) -> None:
    console = _console()
    terminal.print_run(console, scaling.cells[4].records[0][1])
    assert "task: out of memory: <b>4 GiB</b> asked & refused" in _text(console)


def test_a_refused_run_has_only_its_reason() -> None:
    console = _console()
    terminal.print_run(console, Record(refusal({"task": "t", "on": "1x1", "seed": 1}, "fp8 needs a GPU")))
    assert "refused: fp8 needs a GPU" in _text(console)


def test_a_narrow_terminal_loses_nothing(found: StudyFindings) -> None:
    console = _console(80)
    terminal.print_study(console, found)
    assert max(map(len, _text(console).splitlines())) <= 80
