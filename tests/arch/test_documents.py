"""The documents can be read: short lines and paragraphs, links and files that exist, a page for everything, a limit with its proof."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from arch.house import ROOMS
from documents import ALL, PAGES, ROOT, anchors, links, name, paragraphs, prose, rows

WIDTH, MOST_LINES = 120, 8
# Where a path in a document may start: documents on the architecture leave out src/paceline.
STARTS = (ROOT, ROOT / "src" / "paceline", ROOT / "docs")
_FILE = re.compile(r"[\w.][\w./-]*\.(?:py|md|toml|yaml|txt|sh|cpp)")
# Names that stand for a user's own file, and those inside a run directory.
_NOT_OURS = ("path/to/", "runs/", "job/")


def walls(text: str) -> list[str]:
    """What is too long to be read: lines over 120 columns, paragraphs over 8 lines."""
    problems: list[str] = []
    for start, lines in paragraphs(text):
        problems += [f"{start + i}: {len(line)} columns" for i, line in enumerate(lines) if len(line) > WIDTH]
        if len(lines) > MOST_LINES:
            problems.append(f"{start}: a paragraph of {len(lines)} lines")
    return problems


@pytest.mark.parametrize("document", ALL, ids=name)
def test_lines_and_paragraphs_are_short(document: Path) -> None:
    assert not walls(document.read_text()), f"{name(document)}: wrap at {WIDTH}, or cut into lists and headings"


def test_walls_are_found() -> None:
    short, long = "word " * 20, "word " * 30
    assert not walls(f"{short}\n" * 8 + f"\n{short}\n" * 2 + f"\n```\n{long}\n```\n| {long} |\n# {long}\n")
    assert walls(f"# Title\n\n{long}\n") == [f"3: {len(long)} columns"]
    assert walls(f"{short}\n" * 9) == ["1: a paragraph of 9 lines"]
    assert not walls(f"- {short}\n" * 9), "each item of a list is a paragraph"
    assert walls("text\n\n- item\n" + f"  {short}\n" * 9) == ["3: a paragraph of 10 lines"]


def test_the_readme_is_short_and_has_a_picture() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    image = (ROOT / picture).read_bytes()
    assert image.startswith(b"\x89PNG") and 20_000 < len(image) < 300_000


@pytest.mark.parametrize("document", ALL, ids=name)
def test_links_resolve(document: Path) -> None:
    broken: list[str] = []
    for link in links(document.read_text()):
        where, _, anchor = link.partition("#")
        target = (document.parent / where).resolve() if where else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"{name(document)}: {', '.join(broken)}"


def named_files(text: str) -> set[str]:
    """Paths in `code spans`, targets of [links](here), and files of a tree drawn under `src/paceline/`."""
    plain = prose(text)
    paths = {span for span in re.findall(r"`([^`\s]+?)(?:::\w+)?`", plain) if "/" in span and _FILE.fullmatch(span)}
    paths |= {link.partition("#")[0] for link in links(text) if not link.startswith("#")}
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
    return {path for path in paths if not path.startswith(_NOT_OURS)}


@pytest.mark.parametrize("document", ALL, ids=name)
def test_files_a_document_names_exist(document: Path) -> None:
    missing = [
        path
        for path in sorted(named_files(document.read_text()))
        if not any((start / path).exists() for start in (*STARTS, document.parent))
    ]
    assert not missing, f"{name(document)} names files that do not exist: {', '.join(missing)}"


def test_named_files_are_found() -> None:
    text = "See `spec/run.py`, `tests/x.py::test_y` and [this](docs/x.md#part), not `x.py` or `path/to/file.py`.\n"
    drawn = "```\nsrc/paceline/\n  cli.py  words\n  worker/  x\n    loop.py  y\n  base/\n```\n"
    assert named_files(text + drawn) == {"spec/run.py", "tests/x.py", "docs/x.md", "cli.py", "worker/loop.py"}


def _pages(entry: Any) -> list[str]:
    """The files of a part of the site's navigation, however deep."""
    if isinstance(entry, str):
        return [entry]
    parts: Any = entry.values() if isinstance(entry, dict) else entry  # pyright: ignore[reportUnknownVariableType]
    return [page for part in parts for page in _pages(part)]


def test_the_site_has_every_page_once() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert [next(iter(part)) for part in nav] == ["Start", "Tutorial", "How-to", "Studies", "Reference", "Explanation"]
    folder = ROOT / "docs"
    assert sorted(_pages(nav)) == sorted(str(path.relative_to(folder)) for path in folder.rglob("*.md"))


def test_study_pages_quote_what_they_need() -> None:
    """A letter says nothing to a reader who has not got the reports; docs/studies.md alone explains them."""
    for page in (ROOT / "docs" / "studies").glob("*.md"):
        assert not re.search(r"\b[Rr]eports? [A-E]\b|\btable [A-E]\d", page.read_text()), name(page)


def unproved(text: str, rules: str) -> list[str]:
    """Rows of limits that name no day, no test that is there and no rule that is tested."""
    problems: list[str] = []
    for row in rows(text):
        proof = row[-1].strip("`")
        path, _, test = proof.partition("::")
        if re.fullmatch(r"\d{4}-\d\d-\d\d", proof) or f'"{proof}":' in rules:
            continue
        if not (test and (ROOT / path).exists() and f"def {test}(" in (ROOT / path).read_text()):
            problems.append(row[0])
    return problems


def test_every_limit_is_tested_or_dated() -> None:
    rules = (ROOT / "tests" / "unit" / "spec" / "test_resolve.py").read_text()
    text = (ROOT / "docs" / "limits.md").read_text()
    assert len(rows(text)) > 20 and not unproved(text, rules)
    assert unproved("| a | b |\n|---|---|\n| x | soon |\n| y | 2026-11-16 |\n| z | `no-rule` |\n", rules) == ["x", "z"]
    assert unproved("| a |\n|---|\n| `tests/arch/test_documents.py::test_no_such` |\n", rules)


def test_pages_are_known() -> None:
    assert len(PAGES) > 30 and len({path.name for path in PAGES}) > 20


def test_the_page_of_the_source_is_what_the_files_say() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "source-page", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_room_is_in_the_plan_of_the_house() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / "docs" / "architecture.md").read_text(), flags=re.MULTILINE)
    assert {room for room in ROOMS if not room.startswith("__")} <= set(rows)
