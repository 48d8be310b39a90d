"""The synthetic studies, written once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.commands.report import findings
from paceline.records.study import StudyRecord
from paceline.report.words.spoken import SpokenStudy
from unit.report import synthetic


@pytest.fixture(scope="session")
def scaling(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    folder: Path = tmp_path_factory.mktemp("scaling")
    return synthetic.write(synthetic.scaling_study(), folder)


@pytest.fixture(scope="session")
def found(scaling: StudyRecord) -> SpokenStudy:
    return findings(scaling)
