"""The documents are true: their commands run, their files and links exist, their tables are complete. No wording is checked.

In README.md and docs/, of every fenced block:
- ```console: each line that begins with "$ " is run, in order, file by file, in one empty folder with copies of examples/.
- ```LANGUAGE title="NAME": is written to NAME there first, so that later commands find it.
A comment before a console block says more: `<!-- exit: 2 -->` another exit code; `<!-- checked -->` the lines shown (but "...")
are in the output, in that order; `<!-- not run: REASON -->` the block is left out, for that reason.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.commands.listing import settings as listed_settings
from paceline.commands.study import shipped
from paceline.spec.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
COMMAND_S = 240

_COMMENT = re.compile(r"<!--\s*([a-z ]+?)\s*(?::\s*(.*?))?\s*-->")
_FENCE = re.compile(r"^```(\S*)\s*(?:title=\"([^\"]+)\")?\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    line: int
    language: str
    title: str | None
    text: str
    said: dict[str, str]  # the comments before it

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """(command, the lines of output shown below it)."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found and line.strip() not in ("", "..."):
                found[-1][1].append(line.rstrip())
        return found


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


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(command: str, folder: Path) -> tuple[int, str]:
    """As in a user's shell, with this environment's `paceline` and `python` first."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, _ = process.communicate(timeout=COMMAND_S)
        except BaseException:  # paceline takes its own children with it; a pipe or a shell does not
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise
    return process.returncode, out


def check_output(shown: list[str], out: str, where: str) -> None:
    lines = iter(line.rstrip() for line in out.splitlines())
    for wanted in shown:
        assert any(line == wanted for line in lines), f"{where}: not in the output (in this order): {wanted!r}\n{out}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("document", [path for path in DOCUMENTS if "```console" in path.read_text()], ids=name)
def test_commands_run(document: Path, tmp_path: Path) -> None:
    for example in EXAMPLES.iterdir():
        if example.is_file():
            shutil.copy(example, tmp_path)
    for block in blocks(document.read_text()):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.text)
        if block.language != "console" or "not run" in block.said:
            continue
        for command, shown in block.commands:
            where = f"{name(document)}:{block.line}: $ {command}"
            code, out = run(command, tmp_path)
            assert code == int(block.said.get("exit", "0")), f"{where}\nexit code {code}\n{out}"
            if "checked" in block.said:
                check_output(shown, out, where)


def test_what_is_not_run_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the list of them: `pytest -s -k not_run`."""
    found = [(path, block) for path in DOCUMENTS for block in blocks(path.read_text()) if "not run" in block.said]
    with capsys.disabled():
        print("\n".join(["", *(f"not run: {name(path)}:{b.line}: {b.said['not run']}" for path, b in found)]))
    for path, block in found:
        assert len(block.said["not run"].split()) >= 3, f"{name(path)}:{block.line}: say why it is not run"


def test_console_blocks_hold_commands_and_comments_are_known() -> None:
    for path in DOCUMENTS:
        for block in blocks(path.read_text()):
            where = f"{name(path)}:{block.line}"
            assert set(block.said) <= {"exit", "checked", "not run", "result table"}, where
            assert block.language in {"console", "python", "yaml", "json", "text", ""}, where
            assert block.language != "console" or block.commands, f"{where}: no line begins with '$ '"


def test_blocks_named_like_an_example_are_that_example() -> None:
    found = {
        block.title: block.text for path in DOCUMENTS for block in blocks(path.read_text())
        if block.title and (EXAMPLES / block.title).exists()
    }  # fmt: skip
    assert "my_task.py" in found
    for title, text in found.items():
        assert text == (EXAMPLES / title).read_text(), f"{title} is not examples/{title}"


def test_my_task_is_ten_lines() -> None:
    lines = [line for line in (EXAMPLES / "my_task.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 10


def anchors(path: Path) -> set[str]:
    """The headings of a document as GitHub names them."""
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", LINKED, ids=name)
def test_links_resolve(document: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken: list[str] = []
    for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", prose):
        where, _, anchor = link.partition("#")
        target = (document.parent / where).resolve() if where else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"{name(document)}: {', '.join(broken)}"


def rows(path: Path) -> list[list[str]]:
    """The cells of every table row that begins with a `name`."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_settings_page_is_complete() -> None:
    table = rows(ROOT / "docs" / "settings.md")
    assert [row[0].strip("`") for row in table] == list(Settings.model_fields), "each once, in order, and none else"
    for row, (setting, values, default, _) in zip(table, listed_settings()[1], strict=True):
        assert len(row) == 6 and all(row), f"{setting}: name, values, default, what, where applied, how read back"
        assert row[1] == values, f"{setting}: its values are {values}"
        assert row[2] == (f"`{default}`" if default else "unset"), f"{setting}: its default is {default or 'unset'}"


def test_every_shipped_study_has_a_page() -> None:
    folder = ROOT / "docs" / "studies"
    assert {path.stem for path in folder.glob("*.md")} == set(shipped())
    index = (ROOT / "docs" / "studies.md").read_text()
    for study in shipped():
        assert f"(studies/{study}.md)" in index
