"""A study's findings as one Markdown page with GitHub tables. It escapes whatever a user wrote; it draws no chart."""

from __future__ import annotations

import re

from paceline.report import tables
from paceline.report.words.spoken import SpokenStudy

_SPECIAL = re.compile(r"([\\`*_\[\]|~#$])")


def escape(text: str) -> str:
    """Text that Markdown and the HTML below it both leave alone, on one line.

    >>> escape("a|b <script>")
    'a\\\\|b &lt;script&gt;'
    """
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", line)


def _row(values: tuple[str, ...]) -> str:
    return f"| {' | '.join(values)} |"


def _table(table: tables.Table) -> str:
    rule = tuple("---:" if column.align == "right" else "---" for column in table.columns)
    head = [_row(tuple(escape(column.title) for column in table.columns)), _row(rule)]
    body = [_row(tuple(escape(value) for value in row)) for row in table.rows]
    note = [f"{escape(table.note)}\n"] if table.note else []
    return "\n".join([f"## {escape(table.title)}\n", *note, *head, *body])


def render(study: SpokenStudy) -> str:
    parts = [f"# {escape(study.name)}", f"**{escape(study.headline)}**"]
    if study.about:
        parts.append(escape(study.about))
    parts += [_table(table) for table in tables.all_tables(study)]
    if study.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {escape(note)}" for note in study.notes))
    told = "\n".join(f"- {name}: {escape(value)}" for name, value in tables.provenance(study))
    parts.append(f"## Where these figures come from\n\n{told}")
    return "\n\n".join(parts) + "\n"
