"""`paceline profile`: the page of a run that was profiled. The run itself is `paceline run` with the setting `profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.base.files import write_text
from paceline.records.layout import RunDir

if TYPE_CHECKING:
    from paceline.records.record import Record


def word(*, inference: bool) -> str:
    """The setting that makes a run a profile."""
    return f"profile={'inference' if inference else 'training'}"


def write_page(record: Record) -> None:
    """profile.html beside the record; nothing for a run that trained."""
    if record.profile is not None:
        from paceline.report import profile_page

        write_text(RunDir(record.run_dir).profile_page, profile_page.render(record))
