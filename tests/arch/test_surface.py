"""What users hold on to: the public names resolve, and importing costs nothing. (What readers hold on to: `test_documents.py`.)"""

from __future__ import annotations

import subprocess
import sys

import pytest

import paceline


def test_all_is_what_can_be_resolved() -> None:
    assert sorted(paceline.__all__) == sorted(paceline._WHERE)  # pyright: ignore[reportPrivateUsage]
    for name in paceline.__all__:
        assert getattr(paceline, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(paceline, "nothing")  # noqa: B009


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, paceline; print(*sorted(m for m in sys.modules if m.split('.')[0] in ('paceline', 'torch', 'numpy')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["paceline"]
