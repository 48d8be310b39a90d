"""The documents are true: their commands run, their tables are the program's own. No wording is checked.

In README.md and docs/, of every fenced block:
- ```console: each line that begins with "$ " is run, in order, file by file, in one empty folder with copies of examples/.
  A command that changes nothing (`paceline list`, `--dry-run`) and stands in several documents is run in the first of them.
- ```LANGUAGE title="NAME": is written to NAME there first, so that later commands find it.
A comment before a console block says more: `<!-- exit: 2 -->` another exit code; `<!-- checked -->` the lines shown (but "...")
are in the output, in that order; `<!-- repeats: 1 -->` a study that is shown with more repeats is run with that many;
`<!-- not run: REASON -->` the block is left out, for that reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from documents import PAGES, ROOT, Block, blocks, name, prose
from paceline.commands.listing import settings as listed_settings
from paceline.commands.study import shipped
from paceline.spec.settings import Settings

EXAMPLES = ROOT / "examples"
COMMAND_S = 240


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


def changes_nothing(command: str) -> bool:
    return ">" not in command and (command.startswith("paceline list ") or "--dry-run" in command)


def to_run(document: Path) -> list[tuple[Block, list[tuple[str, list[str]]]]]:
    """The blocks of a document with the commands that are run for it: not those that an earlier document has run."""
    earlier = {
        command
        for path in PAGES[: PAGES.index(document)]
        for block in blocks(path.read_text())
        if block.language == "console" and not {"not run", "checked", "exit"} & set(block.said)
        for command, _ in block.commands
        if changes_nothing(command)
    }
    chosen: list[tuple[Block, list[tuple[str, list[str]]]]] = []
    for block in blocks(document.read_text()):
        console = block.language == "console" and "not run" not in block.said
        again = "checked" in block.said or "exit" in block.said
        commands = [(c, shown) for c, shown in block.commands if again or c not in earlier] if console else []
        if "repeats" in block.said:
            commands = [
                (re.sub(r"--repeats \d+", f"--repeats {int(block.said['repeats'])}", c), s) for c, s in commands
            ]
        chosen.append((block, commands))
    return chosen


@pytest.mark.timeout(900)
@pytest.mark.parametrize("document", [page for page in PAGES if any(c for _, c in to_run(page))], ids=name)
def test_commands_run(document: Path, tmp_path: Path) -> None:
    for example in EXAMPLES.iterdir():
        if example.is_file():
            shutil.copy(example, tmp_path)
    for block, commands in to_run(document):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.text)
        for command, shown in commands:
            where = f"{name(document)}:{block.line}: $ {command}"
            code, out = run(command, tmp_path)
            assert code == int(block.said.get("exit", "0")), f"{where}\nexit code {code}\n{out}"
            if "checked" in block.said:
                check_output(shown, out, where)


def test_every_command_is_run_somewhere_or_says_why_not() -> None:
    once = [
        command for page in PAGES for _, commands in to_run(page) for command, _ in commands if changes_nothing(command)
    ]
    shown = {
        command
        for page in PAGES
        for block in blocks(page.read_text())
        if block.language == "console" and "not run" not in block.said
        for command, _ in block.commands
        if changes_nothing(command)
    }
    assert set(once) == shown and len(shown) > 15


def test_what_is_not_run_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the list of them: `pytest -s -k not_run`."""
    left_out = [(path, block) for path in PAGES for block in blocks(path.read_text()) if "not run" in block.said]
    with capsys.disabled():
        print("\n".join(["", *(f"not run: {name(path)}:{b.line}: {b.said['not run']}" for path, b in left_out)]))
    for path, block in left_out:
        assert len(block.said["not run"].split()) >= 3, f"{name(path)}:{block.line}: say why it is not run"


def test_console_blocks_hold_commands_and_comments_are_known() -> None:
    for path in PAGES:
        for block in blocks(path.read_text()):
            where = f"{name(path)}:{block.line}"
            assert set(block.said) <= {"exit", "checked", "repeats", "not run"}, where
            assert block.language in {"console", "python", "yaml", "json", "text", ""}, where
            assert block.language != "console" or block.commands, f"{where}: no line begins with '$ '"
            hidden = re.search(r"^(?:\$ |paceline |python )", block.text, flags=re.MULTILINE)
            assert block.language == "console" or not hidden or path.name == "commands.md", (
                f"{where}: a command that nobody runs"
            )


def test_blocks_named_like_an_example_are_that_example() -> None:
    titled = {
        block.title: block.text for path in PAGES for block in blocks(path.read_text())
        if block.title and (EXAMPLES / block.title).exists()
    }  # fmt: skip
    assert "my_task.py" in titled
    for title, text in titled.items():
        assert text == (EXAMPLES / title).read_text(), f"{title} is not examples/{title}"


def test_my_task_is_ten_lines() -> None:
    lines = [line for line in (EXAMPLES / "my_task.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 10


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


def test_the_tables_of_the_studies_are_what_was_measured() -> None:
    """Pages hold the tables of docs/studies/results, and nothing that was typed."""
    stale = {
        path: text
        for path, text in runpy.run_path(str(ROOT / "scripts" / "studies"))["pages"]().items()
        if path.read_text() != text
    }
    assert not stale, f"{', '.join(map(str, stale))}: run scripts/studies pages"


def test_every_claim_has_a_verdict() -> None:
    """Of real runs, for the claims as they stand now: a claim that is changed needs new runs, or a new look at the old ones."""
    folder = ROOT / "docs" / "studies" / "results"
    made: dict[str, list[dict[str, Any]]] = {}
    for path in folder.glob("*.json"):
        result: dict[str, Any] = json.loads(path.read_text())
        assert result["repeats"] >= 3 and result["date"], path.name
        made.setdefault(result["study"], []).append(result)
    assert made.keys() == shipped().keys()
    for study, file in shipped().items():
        assert file.reference is not None
        claims = [(said.report, said.claim) for said in file.reference.conclusions]
        for result in made[study]:
            assert [(told["report"], told["claim"]) for told in result["claims"]] == claims, study
        for index, (_, claim) in enumerate(claims):
            verdicts = {result["claims"][index]["verdict"] for result in made[study]}
            assert verdicts & {"confirmed", "refuted", "no difference shown", "not decided", "not tested here"}, (
                f"{study}: {claim}"
            )


def test_the_page_of_commands_is_the_programs_own() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "commands-page"))
    assert page["PAGE"].read_text() == page["render"](), "make docs writes it anew"


def explained(text: str, heading: str) -> set[str]:
    """The keys that a section of the record's page has in the first cells of its table."""
    section = re.split(rf"^## {re.escape(heading)}$", prose(text), flags=re.MULTILINE)[1].partition("\n## ")[0]
    cells = " ".join(line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `"))
    return set(re.findall(r"`(?:train\.|test\.)?(\w+)`", cells))


def test_the_page_of_the_record_has_every_key(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reference" / "record.md").read_text()
    task = EXAMPLES / "my_task.py"
    code, out = run(
        f"paceline study {task} on=1x2 steps=8 threads=1 target=0.5 --repeats 1 --out study --json 2> errors", tmp_path
    )
    assert code == 0, (tmp_path / "errors").read_text()
    (result,) = tmp_path.glob("study/cells/*/repeat_000/result.json")
    plain: dict[str, Any] = json.loads(result.read_text())
    sections: dict[str, dict[str, Any]] = {
        "The whole": plain, "applied": plain["applied"], "ranks": plain["ranks"][0], "time": plain["time"],
        "memory": plain["memory"], "A study": json.loads(out),
    }  # fmt: skip
    for heading, keys in sections.items():
        assert not set(keys) - explained(text, heading), f"{heading}: keys that the page does not explain"
    assert not explained(text, "The whole") - set(plain), "keys that no record has"
    assert not explained(text, "A study") - set(sections["A study"]) - {"metrics"}
