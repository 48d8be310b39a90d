r"""A study's tables as LaTeX to \input into a paper (packages booktabs and graphicx). It escapes user text; it is no whole document."""

from __future__ import annotations

import re

from paceline.report import tables
from paceline.report.words.spoken import SpokenStudy

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "±": r"$\pm$", "×": r"$\times$", "µ": r"$\mu$", '"': r"\textquotedbl{}",
}  # fmt: skip
_SPECIAL = re.compile("[" + re.escape("".join(_ESCAPES)) + "]")


def escape(text: str) -> str:
    r"""
    >>> escape("50 % of a_b ± 1")
    '50 \\% of a\\_b $\\pm$ 1'
    """
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], " ".join(text.split()))


def _row(values: tuple[str, ...]) -> str:
    """An opening bracket at the start of a row would be read as an argument of the line break before it."""
    guard = "{}" if values[0].startswith(("[", "*")) else ""
    return f"    {guard}" + " & ".join(escape(value) for value in values) + r" \\"


def _column(column: tables.Column) -> str:
    return r"p{0.8\linewidth}" if column.wide else "r" if column.align == "right" else "l"


def _table(table: tables.Table, study: SpokenStudy) -> str:
    align = "".join(_column(column) for column in table.columns)
    caption = f"{study.name}: {table.title.lower()}" + (f" ({table.note})" if table.note else "")
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escape(caption)}.}}",
        rf"  \label{{tab:{_key(study.name)}-{table.name}}}",
        r"  \resizebox{\ifdim\width>\linewidth \linewidth\else \width\fi}{!}{%",
        rf"  \begin{{tabular}}{{{align}}}",
        r"    \toprule",
        _row(tuple(column.title for column in table.columns)),
        r"    \midrule",
        *(_row(row) for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _key(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def _comment(text: str) -> str:
    return "% " + " ".join(text.split())


def render(study: SpokenStudy) -> str:
    head = [
        _comment(f"{study.name}: made by Paceline. Needs \\usepackage{{booktabs,graphicx}} and T1 fonts."),
        _comment(study.headline),
        *(_comment(f"{name}: {value}") for name, value in tables.provenance(study)),
        *(_comment(note) for note in study.notes),
    ]
    return "\n\n".join(["\n".join(head), *(_table(table, study) for table in tables.all_tables(study))]) + "\n"
