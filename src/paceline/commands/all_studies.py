"""`paceline study all`: every shipped study in turn, and one page with each claim of the five reports and its verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import BadInput
from paceline.base.files import write_text
from paceline.base.names import unknown
from paceline.commands.report import Reported, read
from paceline.commands.run import RUNS
from paceline.commands.study import Ready, ready, shipped
from paceline.launch.supervise import warmed
from paceline.launch.warm import Warm
from paceline.records.claims import Claim, Told
from paceline.records.layout import StudyDir
from paceline.report.table import Table
from paceline.spec import settings
from paceline.spec.tasks import BUILTIN
from paceline.study.reports import parts


@dataclass(frozen=True, slots=True)
class All:
    """`place`: each study's folder is below it, and the page lies in it."""

    place: Path
    quick: bool
    told: tuple[Told, ...]

    @property
    def page(self) -> Path:
        return self.place / ("studies-quick.html" if self.quick else "studies.html")

    @property
    def claims(self) -> list[Claim]:
        return claims(self.told)

    def tables(self) -> list[Table]:
        from paceline.report import overview

        return overview.tables(self.claims, self.told)

    def plain(self) -> dict[str, Any]:
        every = [
            {"report": c.of or None, "claim": c.claim, "verdict": c.verdict, "why": c.why, "study": c.study or None}
            for c in self.claims
        ]
        return {"schema": 1, "quick": self.quick, "studies": [one.plain() for one in self.told], "claims": every}

    def write(self) -> None:
        from paceline.report import overview

        write_text(self.page, overview.render(self.claims, self.told, quick=self.quick))


_NOT_RUN = "not run: "


def names() -> list[str]:
    return list(shipped())


def place(out: Path | None) -> Path:
    return (out if out is not None else RUNS).resolve()


def prepared(
    name: str, words: Mapping[str, str], *, repeats: int | None, quick: bool, out: Path, warm: Warm | None
) -> Ready | Told:
    """Ready to run, or why this machine cannot run any of it: then its claims are not tested here, for that reason."""
    folder = out / (f"{name}-quick" if quick else name)
    try:
        return ready(name, words, repeats=repeats, quick=quick, out=folder, warm=warm)
    except BadInput as error:
        why = "; ".join(error.problems)
        said = shipped(name)[name].reference
        lost = [
            Claim(c.report or "", c.claim, "not tested here", why, name) for c in (said.conclusions if said else [])
        ]
        return Told(name, tuple(lost), why=f"{_NOT_RUN}{why}")


def told(what: Ready, reported: Reported, *, out: Path) -> Told:
    name = what.file.study.removesuffix("-quick")
    return _told(name, reported, page=os.path.relpath(what.folder.html, out))


def _told(name: str, reported: Reported, *, page: str) -> Told:
    found = reported.findings
    judged = [Claim(j.report or "", j.claim, j.verdict, j.why, name) for j in found.judged]
    return Told(
        name, tuple(judged), headline=found.headline, page=page, changed="; ".join(found.changed),
        num_failed=sum(len(cell.failed) for cell in reported.study.cells),
    )  # fmt: skip


def told_of(name: str, out: Path) -> Told:
    """What a study's folder shows, whatever made it."""
    reported = read(out / name)
    what = StudyDir(out / name)
    return _told(name, reported, page=os.path.relpath(what.html, out))


def claims(every: Sequence[Told]) -> list[Claim]:
    """In the order of the reports; those that wait for a study stand in their place, and ours come last."""
    judged = [claim for one in every for claim in one.claims]
    found: list[Claim] = []
    for part in parts():
        found += [claim for claim in judged if claim.of == part.id]
        found += [Claim(part.id, fact.claim, fact.verdict, fact.why) for fact in part.facts]
        found += [Claim(part.id, claim, "not tested here", f"it waits for {part.waits_for}") for claim in part.claims]
    return found + [claim for claim in judged if not claim.of]


def planned(
    words: Mapping[str, str], *, repeats: int | None, quick: bool, out: Path | None
) -> list[tuple[str, Ready | Told]]:
    """Every study as it would be run, or why it would not; what no study can be run with is bad input."""
    known = [*settings.names(), *(param.name for file in shipped().values() for param in BUILTIN[file.task].params)]
    if wrong := [unknown("setting", name, dict.fromkeys(known)) for name in words if name not in known]:
        raise BadInput(wrong)
    folder = place(out)
    rows = [(n, prepared(n, words, repeats=repeats, quick=quick, out=folder, warm=None)) for n in names()]
    refused = [what.why for _, what in rows if isinstance(what, Told)]
    if len(refused) == len(rows):
        raise BadInput(list(dict.fromkeys(why.removeprefix(_NOT_RUN) for why in refused)))
    return rows


def go_through(
    words: Mapping[str, str], run: Callable[[Ready, Warm], Reported], *, begin: Callable[[str, int, int], None], repeats: int | None,
    quick: bool, out: Path | None,
) -> All:  # fmt: skip
    """Each study through `run`; the page is written after each, so that an interruption leaves one of what there is."""
    planned(words, repeats=repeats, quick=quick, out=out)
    folder = place(out)
    done = All(folder, quick, ())
    for index, name in enumerate(names()):
        begin(name, index + 1, len(names()))
        with warmed() as warm:  # one a study: what it has imported and described is of one task
            what = prepared(name, words, repeats=repeats, quick=quick, out=folder, warm=warm)
            row = what if isinstance(what, Told) else told(what, run(what, warm), out=folder)
        done = All(folder, quick, (*done.told, row))
        done.write()
    return done
