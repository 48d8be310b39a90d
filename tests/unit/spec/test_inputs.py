"""What a finished run depended on, and what of it is not as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.spec.inputs import Inputs, changed, changed_here, folder_digest, source_digest, stamp_of, variable_digest


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("1,2\n3,4\n")
    return path


def _touch(path: Path, by_ns: int = 1_000_000_000) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + by_ns))


def test_a_file_with_other_content_has_changed(table: Path) -> None:
    then = Inputs(files={str(table): stamp_of(table)})
    assert changed(then) == []
    table.write_text("1,2\n3,5\n")  # as long as before
    _touch(table)
    assert changed(then) == ["table.csv"]
    assert changed(then, Inputs(files={str(table): stamp_of(table)})) == ["table.csv"]


def test_a_file_written_again_with_the_same_content_has_not(table: Path) -> None:
    then = Inputs(files={str(table): stamp_of(table)})
    _touch(table)
    assert changed(then) == []
    assert changed(then, Inputs(files={str(table): stamp_of(table)})) == []


def test_of_a_file_too_large_to_read_size_and_time_count(table: Path) -> None:
    then = Inputs(files={str(table): stamp_of(table, most=3)})
    assert then.files[str(table)].content is None and changed(then) == []
    _touch(table)
    assert changed(then) == ["table.csv"]


def test_a_file_that_is_gone_is_said_to_be(table: Path) -> None:
    then = Inputs(files={str(table): stamp_of(table)}, modules={str(table): stamp_of(table)})
    table.unlink()
    assert changed(then) == ["table.csv is gone", "table.csv is gone"]
    assert changed_here(then) == ["table.csv is gone"]  # the module; another machine need not have the data


def test_what_was_looked_at_just_now_is_not_looked_up_again(table: Path) -> None:
    then = Inputs(files={str(table): stamp_of(table)}, folders={str(table.parent): "a"}, variables={"A": "b"})
    table.unlink()
    assert changed(then, then) == []


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("a")
    then = Inputs(folders={str(tmp_path): str(folder_digest(tmp_path))})
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "some.lock").write_text("")
    (tmp_path / "__pycache__").mkdir()
    assert changed(then) == []
    (tmp_path / "b.png").write_text("b")
    assert changed(then) == [f"files in {tmp_path}"]
    assert folder_digest(tmp_path / "none") is None


def test_a_variable_is_compared_and_its_value_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_RATE", "secret")
    then = Inputs(variables={"TASK_RATE": variable_digest("secret"), "TASK_NONE": None})
    assert changed(then) == [] and "secret" not in then.model_dump_json()
    monkeypatch.setenv("TASK_RATE", "other")
    monkeypatch.setenv("TASK_NONE", "")
    assert changed(then) == ["the variable TASK_RATE", "the variable TASK_NONE"]
    monkeypatch.delenv("TASK_RATE")
    assert "the variable TASK_RATE" in changed(then)


def _samples(num: int, *digests: str, seed: int = 1) -> Inputs:
    return Inputs(samples={"train": (num, tuple((digest,) for digest in digests))}, seed=seed)


@pytest.mark.parametrize(
    ("now", "differs"),
    [
        (_samples(9, "a", "b"), False),
        (_samples(9, "a"), False),  # there was less time to look
        (_samples(9, "a", ""), False),  # a part that is different each time says nothing
        (_samples(8, "a", "b"), True),
        (_samples(9, "a", "c"), True),
        (_samples(8, "x", seed=2), False),  # another seed may draw other samples
    ],
)
def test_samples_are_compared_where_no_file_says_so(now: Inputs, differs: bool) -> None:
    assert changed(_samples(9, "a", "b"), now) == (["what train_data() gives"] if differs else [])


def test_source_is_the_same_in_another_folder(tmp_path: Path) -> None:
    digests = list[str]()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        source = tmp_path / folder / "task.py"
        source.write_text("X = 1\n")
        _touch(source, by_ns=len(digests))
        digests.append(source_digest({str(source): stamp_of(source)}, source))
    assert digests[0] == digests[1]
    source.write_text("X = 2\n")
    assert source_digest({str(source): stamp_of(source)}, source) != digests[0]
