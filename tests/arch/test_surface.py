"""What users and readers hold on to: the public names resolve, importing costs nothing, and the files the documents name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import paceline

ROOT = Path(__file__).resolve().parents[2]
# Where a path in a document may start: documents on the architecture leave out src/paceline.
STARTS = (ROOT, ROOT / "src" / "paceline", ROOT / "docs")
_FILE = re.compile(r"[\w.][\w./-]*\.(?:py|md|toml|yaml|txt|sh)")


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


def _named_files(text: str) -> set[str]:
    """Paths in `code spans`, targets of [links](here), and files of a tree drawn under `src/paceline/`."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    paths = {span for span in re.findall(r"`([^`\s]+)`", prose) if "/" in span and _FILE.fullmatch(span)}
    paths |= {link.partition("#")[0] for link in re.findall(r"\]\((?![a-z]+:|#)([^)\s]+)\)", prose)}
    for block in re.findall(r"^```\w*\nsrc/paceline/\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        trail: list[tuple[int, str]] = []
        for line in block.splitlines():
            indent, words = len(line) - len(line.lstrip()), line.split()
            while trail and trail[-1][0] >= indent:
                trail.pop()
            if words and words[0].endswith("/"):
                trail.append((indent, words[0]))
            elif words and _FILE.fullmatch(words[0]):
                paths.add("".join(folder for _, folder in trail) + words[0])
    return {path for path in paths if not path.startswith(("path/to/", "runs/"))}


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_files_a_document_names_exist(document: str) -> None:
    file = ROOT / document
    assert file.exists(), f"{document} is missing"
    missing = [
        path
        for path in sorted(_named_files(file.read_text()))
        if not any((start / path).exists() for start in (*STARTS, file.parent))
    ]
    assert not missing, f"{document} names files that do not exist: {', '.join(missing)}"


def test_named_files_are_found() -> None:
    prose = "See `spec/run.py` and [this](docs/x.md#part), not `x.py` or `path/to/file.py`.\n"
    drawn = "```\nsrc/paceline/\n  cli.py  words\n  worker/  x\n    loop.py  y\n  base/\n```\n"
    assert _named_files(prose + drawn) == {"spec/run.py", "docs/x.md", "cli.py", "worker/loop.py"}
