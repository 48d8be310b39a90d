"""Every folder of tests is looked into: pytest leaves some names out by itself (`dist`, `build`), and says nothing."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_no_folder_of_tests_is_left_out(pytestconfig: pytest.Config) -> None:
    left_out = pytestconfig.getini("norecursedirs")
    assert left_out, "the setting is there"
    folders = {path.parent for path in TESTS.rglob("test_*.py")}
    names = {name for folder in folders for name in folder.relative_to(TESTS).parts}
    assert "dist" in names
    assert not [name for name in names if any(fnmatch(name, pattern) for pattern in left_out)]
