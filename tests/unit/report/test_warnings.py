"""What a reader must know beside the figures stands wherever the figures do: record, terminal (run and study), page, documents."""

from __future__ import annotations

import io
from dataclasses import replace
from html import unescape

import pytest
from rich.console import Console

from paceline.commands.report import findings
from paceline.records.record import Caution
from paceline.records.study import StudyRecord
from paceline.report import html, markdown, plain, terminal
from paceline.spec.verdict import OTHER_DATA


@pytest.mark.parametrize("kind", ["leak", "again", OTHER_DATA, "batchnorm"])
def test_a_warning_of_one_run_is_everywhere(scaling: StudyRecord, kind: str) -> None:
    text = "3 of 20 <b>test</b> samples changed since the run of 2026"
    first, *others = scaling.cells
    (repeat, record), *rest = first.records
    warned = replace(record, warnings=(Caution(kind=kind, text=text),), document=None)
    study = replace(scaling, cells=(replace(first, records=((repeat, warned), *rest)), *others))
    found = findings(study)
    assert warned.plain["warnings"] == [{"kind": kind, "text": text}]
    page = html.render(found, study)
    assert f"Warning ({kind}): {text}" in unescape(page) and "<b>test" not in page
    assert any(text in note for note in plain.render(found)["notes"]) and kind in markdown.render(found)
    for show, what in ((terminal.print_run, warned), (terminal.print_study, found)):
        console = Console(file=io.StringIO(), width=300, color_system=None)
        show(console, what)  # type: ignore[operator]
        assert isinstance(console.file, io.StringIO)
        assert f"arning ({kind}): {text}" in console.file.getvalue()
