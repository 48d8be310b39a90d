"""All studies on one page: each claim of the five reports with its verdict, and how each study ended. It computes nothing."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from paceline.records.claims import Claim, Told
from paceline.report.html import TONES
from paceline.report.table import Column, Table

_COLUMNS = (Column("of"), Column("claim"), Column("verdict"), Column("our figures", wide=True), Column("study"))


def claims_table(claims: Sequence[Claim], *, name: str, title: str, note: str = "") -> Table:
    rows = tuple((c.of or "ours", c.claim, c.verdict, c.why, c.study or "-") for c in claims)
    return Table(name, title, note, _COLUMNS, rows)


def studies_table(told: Sequence[Told]) -> Table:
    rows = tuple((one.name, one.headline or one.why, one.changed) for one in told)
    columns = (Column("study"), Column("what it shows", wide=True), Column("changed on the command line"))
    return Table("studies", "The studies", "", columns, rows)


def summary(claims: Sequence[Claim]) -> str:
    """How many claims ended in which way, the reports' and not ours."""
    num = Counter(claim.verdict for claim in claims if claim.of)
    return ", ".join(f"{count} {verdict}" for verdict, count in num.most_common())


def tables(claims: Sequence[Claim], told: Sequence[Told]) -> list[Table]:
    theirs, ours = [c for c in claims if c.of], [c for c in claims if not c.of]
    made = [
        claims_table(theirs, name="claims", title="The reports' claims", note=summary(claims)),
        claims_table(ours, name="ours", title="What we claim ourselves", note="the reports say nothing of these"),
        studies_table(told),
    ]
    return [table for table in made if table.rows]


def render(claims: Sequence[Claim], told: Sequence[Told], *, quick: bool) -> str:
    """One HTML page without scripts. Text passes through autoescape; only our own style is marked as safe."""
    jinja: Any = importlib.import_module("jinja2")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("paceline", "report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    page: str = environment.get_template("overview.html.j2").render(
        tables=tables(claims, told), summary=summary(claims), quick=quick, tones=TONES,
        links={one.name: quote(one.page) for one in told if one.page},
        css=Markup(files("paceline.report").joinpath("report.css").read_text()),
    )  # fmt: skip
    return page
