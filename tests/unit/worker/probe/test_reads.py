"""What a task is seen to read: in a process of its own, because an audit hook stays for ever. Without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOOKER = """
import runpy, sys
from pathlib import Path
from paceline.worker.probe.reads import Reads

source = Path(sys.argv[1])
sys.path.insert(0, str(source.parent))
with Reads(source, source.parent / "run") as reads:
    __import__(source.stem)
import os
os.environ.get("ASKED_LATER")
open(source.parent / "later.txt").close()
print(reads.inputs().model_dump_json())
"""
TASK = """
import csv, json, os, sqlite3, sys
from pathlib import Path
import beside
sys.path.append("elsewhere")
import library

here = Path(__file__).parent
rows = list(csv.reader(open(here / "table.csv")))
os.open(here / "raw.bin", os.O_RDONLY)
(here / "result.txt").write_text("made here")
(here / "result.txt").read_text()
(here / "only_written.txt").write_text("made here")
sorted((here / "images").iterdir())
for path in (here / "many").iterdir():
    path.read_bytes()
open(here / "run" / "request.json").close()
os.environ.get("TASK_GET"), os.getenv("TASK_GETENV"), "TASK_IN" in os.environ, os.environ.get("PATH"), os.environ.get("RANK")
os.environ.get("PACELINE_RANK")
json.dumps(rows)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, object]]]:
    home = tmp_path_factory.mktemp("task")
    for folder in ("images", "many", "run", "elsewhere"):
        (home / folder).mkdir()
    for name in ("table.csv", "raw.bin", "later.txt", "untouched.txt", "run/request.json", "images/a.png"):
        (home / name).write_text("1,2\n")
    for number in range(40):
        (home / "many" / f"{number}.txt").write_text("x")
    (home / "beside.py").write_text("import os\nos.environ.get('TASK_BESIDE')\n")
    (home / "elsewhere" / "library.py").write_text("X = 1\n")
    (home / "task.py").write_text(TASK)
    done = subprocess.run(
        [sys.executable, "-c", LOOKER, home / "task.py"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return home, json.loads(done.stdout)


def _names(home: Path, found: dict[str, object]) -> set[str]:
    return {str(Path(name).relative_to(home)) for name in found}


def test_modules_are_the_file_and_what_it_imported_that_is_not_installed(
    seen: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    home, inputs = seen
    assert _names(home, inputs["modules"]) == {"task.py", "beside.py", "elsewhere/library.py"}


def test_files_are_what_was_read_meanwhile(seen: tuple[Path, dict[str, dict[str, object]]]) -> None:
    home, inputs = seen
    assert _names(home, inputs["files"]) == {"table.csv", "raw.bin", "result.txt"}


def test_a_folder_that_was_listed_and_one_that_many_files_were_read_of(
    seen: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    home, inputs = seen
    assert _names(home, inputs["folders"]) == {"images", "many"}


def test_variables_are_those_that_the_task_asked_for(seen: tuple[Path, dict[str, dict[str, object]]]) -> None:
    _, inputs = seen
    assert set(inputs["variables"]) == {"TASK_GET", "TASK_GETENV", "TASK_IN", "TASK_BESIDE"}


@pytest.mark.parametrize(
    ("line", "outside"),
    [
        ("1", False),
        ("import subprocess; subprocess.run(['true'])", True),
        ("import os; os.system('true')", True),
        ("import socket; socket.getaddrinfo('localhost', 1)", True),
        ("import urllib.request as r; r.urlopen('http://127.0.0.1:9/')", True),
        # What other commands keep between them is no input of a task.
        ("list(Path(CACHE).iterdir()); open(CACHE + '/probes/a.json').close()", False),
    ],
)
def test_what_comes_from_a_network_or_another_program_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, outside: bool
) -> None:
    cache = tmp_path / "cache"
    (cache / "probes").mkdir(parents=True, mode=0o700)
    cache.chmod(0o700)
    (cache / "probes" / "a.json").write_text("{}")
    monkeypatch.setenv("PACELINE_CACHE", str(cache))
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "task.py").write_text(
        f"import contextlib\nfrom pathlib import Path\nCACHE = {str(cache)!r}\nwith contextlib.suppress(OSError):\n    {line}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", LOOKER.replace('open(source.parent / "later.txt").close()', ""), tmp_path / "task" / "task.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["outside"] is outside and found["files"] == {} == found["folders"]
