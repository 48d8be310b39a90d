"""Markdown and LaTeX against golden files, and what becomes of hostile text. `UPDATE_GOLDEN=1` writes the files anew."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.report import latex, markdown
from paceline.report.words.spoken import SpokenCell, SpokenStudy

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "report"
EVIL = "a|b_c*d <script>alert(1)</script> 50% & $x$ \\end{table} {#}\nnext ~^[link](http://x)"


def _check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_markdown_is_the_golden_file(found: SpokenStudy) -> None:
    _check("scaling.md", markdown.render(found))


def test_latex_is_the_golden_file(found: SpokenStudy) -> None:
    _check("scaling.tex", latex.render(found))


@pytest.fixture
def evil(found: SpokenStudy) -> SpokenStudy:
    cell = SpokenCell(EVIL, {}, 0, "failed", {}, reasons=(EVIL,), planned=1)
    slow = replace(found.missing[0], label=EVIL, words=EVIL)
    return replace(
        found, name=EVIL, headline=EVIL, notes=(EVIL,), cells=(*found.cells, cell), missing=(*found.missing, slow)
    )


def test_markdown_escapes(evil: SpokenStudy) -> None:
    text = markdown.render(evil)
    assert text.count("a\\|b\\_c\\*d") >= 6  # the name, the headline, a note, a cell, its reason, an answer
    assert "<script>" not in text and "[link](" not in text and "a\\|b\\_c\\*d" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for row in rows:  # an unescaped bar would make a new column
        cells = row.replace("\\|", "").count("|") - 1
        assert cells in (2, 3, 4, 7, 8, 9, 12)


def test_latex_escapes(evil: SpokenStudy) -> None:
    text = latex.render(evil)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert r"a\textbar{}b\_c*d \textless{}script\textgreater{}" in body
    assert r"50\% \& \$x\$ \textbackslash{}end\{table\} \{\#\} next \textasciitilde{}\textasciicircum{}" in body
    assert body.count(r"\begin{table}") == body.count(r"\end{table}") == body.count(r"\toprule")


def test_a_latex_row_never_starts_with_a_bracket(found: SpokenStudy) -> None:
    cell = replace(found.cells[0], label="[1, 2]")
    assert "\n    {}[1, 2] & " in latex.render(replace(found, cells=(cell,), baseline="x"))


def test_every_brace_of_the_latex_is_closed(evil: SpokenStudy) -> None:
    body = "\n".join(line for line in latex.render(evil).splitlines() if not line.startswith("%"))
    bare = body.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
