"""The documents as tests read them: pages, their fenced blocks, their prose, their headings. It judges nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What the site is made of, and the README.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ALL = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

_COMMENT = re.compile(r"<!--\s*([a-z ]+?)\s*(?::\s*(.*?))?\s*-->")
_FENCE = re.compile(r"^```(\S*)\s*(?:title=\"([^\"]+)\")?\s*$")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences, and the comments before it."""

    line: int
    language: str
    title: str | None
    text: str
    said: dict[str, str]

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """(command, the lines of output shown below it)."""
        commands: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif commands and line.strip() not in ("", "..."):
                commands[-1][1].append(line.rstrip())
        return commands


def blocks(text: str) -> Iterator[Block]:
    said: dict[str, str] = {}
    body: list[str] | None = None
    start, language, title = 0, "", None
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if body is None and fence:
            body, start, language, title = [], number, fence[1], fence[2]
        elif body is not None and line.rstrip() == "```":
            yield Block(start, language, title, "\n".join(body) + "\n", said)
            said, body = {}, None
        elif body is not None:
            body.append(line)
        elif comment := _COMMENT.fullmatch(line.strip()):
            said[comment[1]] = comment[2] or ""
        elif line.strip():
            said = {}


def prose(text: str) -> str:
    """A document without what stands between fences; the lines keep their numbers."""
    return re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, its lines). An item of a list is one; headings, tables, comments and pictures are none."""
    start, lines = 0, list[str]()
    for number, line in enumerate([*prose(text).splitlines(), ""], start=1):
        apart = not line.strip() or line.startswith(("#", "|", "<!--", "![", ":::", "    "))
        if lines and (apart or _ITEM.match(line)):
            yield start, lines
            lines = []
        if not apart:
            start = start if lines else number
            lines.append(line)


def links(text: str) -> list[str]:
    """Targets inside the documents: [words](page.md#part)."""
    return re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", prose(text))


def anchors(path: Path) -> set[str]:
    """The headings of a document as GitHub and the site name them."""
    titles = re.findall(r"^#+ (.+)$", prose(path.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def rows(text: str) -> list[list[str]]:
    """The cells of every row of every table, headings and rules left out."""
    table: list[list[str]] = []
    lines = prose(text).splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if (
            line.startswith("|")
            and not set(line) <= set("|- ")
            and not (after.startswith("|") and set(after) <= set("|- "))
        ):
            table.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return table
