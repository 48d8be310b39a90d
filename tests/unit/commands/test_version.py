"""`paceline --version`: one line, whatever is installed."""

from __future__ import annotations

import importlib.metadata
import platform

import pytest
from typer.testing import CliRunner

from paceline.cli import program
from paceline.commands import version


def test_the_line_names_the_three_versions() -> None:
    done = CliRunner().invoke(program(), ["--version"])
    ours, torch = (importlib.metadata.version(name) for name in ("paceline", "torch"))
    assert done.exit_code == 0
    assert done.stdout == f"paceline {ours}, torch {torch}, Python {platform.python_version()}\n"


def test_a_machine_without_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda name: None if name == "torch" else "1.2.3")
    assert version.line() == f"paceline 1.2.3, no torch, Python {platform.python_version()}"
