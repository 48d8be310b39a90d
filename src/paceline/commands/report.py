"""`paceline report`: what is on disk, made readable. It reads, computes and writes files; it prints nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.base.errors import BadInput
from paceline.base.files import write_text
from paceline.records.layout import RunDir, StudyDir
from paceline.records.record import Record
from paceline.records.study import StudyRecord, load_study, loose_study
from paceline.study.queued import pick_up, waiting

if TYPE_CHECKING:
    from paceline.report.words.spoken import SpokenStudy


@dataclass(frozen=True, slots=True)
class Reported:
    study: StudyRecord
    findings: SpokenStudy

    @property
    def found(self) -> SpokenStudy:
        """`findings`, by the name that scripts know."""
        return self.findings

    @property
    def profile(self) -> Record | None:
        """The one run that was read, if it is a profile: then its profile is what is shown."""
        records = [record for cell in self.study.cells for _, record in cell.records]
        alone = len(records) == 1 and records[0].run_dir == self.study.path
        return records[0] if alone and records[0].profile else None


def findings(study: StudyRecord) -> SpokenStudy:
    """What analysis concludes of the runs, in the words of the report."""
    from paceline.analysis.study import findings
    from paceline.report.words.study import spoken

    return spoken(findings(study))


def read(path: Path) -> Reported:
    """A study, one run, or a folder of runs."""
    if not path.exists():
        raise BadInput(f"{path}: there is no such folder")
    if not path.is_dir():
        raise BadInput(f"{path}: is a file; give the folder of a study or a run")
    pick_up(path)  # runs whose jobs have ended since somebody last looked
    if RunDir(path).submitted:
        raise BadInput(f"{path}: {waiting(RunDir(path))}")
    study = load_study(path) if StudyDir(path).plan.exists() else loose_study(path)
    return Reported(study, findings(study))


def is_run(path: Path) -> bool:
    return RunDir(path).finished


def write_html(reported: Reported, path: Path) -> None:
    from paceline.report import html, profile_page

    profiled = reported.profile
    page = (
        profile_page.render(profiled)
        if profiled
        else html.render(reported.findings, reported.study, folder=path.absolute().parent)
    )
    write_text(path, page)


def write_markdown(reported: Reported, path: Path) -> None:
    from paceline.report import markdown

    write_text(path, markdown.render(reported.findings))


def write_latex(reported: Reported, path: Path) -> None:
    from paceline.report import latex

    write_text(path, latex.render(reported.findings))


def write_samples(reported: Reported, path: Path) -> int:
    from paceline.analysis.export import samples
    from paceline.report import export

    return export.write(samples(reported.study), path)
