"""`paceline runs`: what is on disk - list it, compare two of it, remove some of it. Rows of text; it prints nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from paceline.base.errors import BadInput
from paceline.base.files import locked, remove_tree
from paceline.records.layout import RunDir, StudyDir
from paceline.records.record import Record, find, load
from paceline.records.study import load_plan
from paceline.report.words import runs as words
from paceline.spec.settings import NOT_THE_EXPERIMENT

_COMPARED = (
    "time.wall_s",
    "time.training_s",
    "time.to_target_s",
    "throughput",
    "train.loss",
    "test.loss",
    "memory.step_bytes",
    "memory.rss_bytes",
)
# Said elsewhere in the line, or no setting.
_OWN_COLUMN = frozenset({"task", "on", "profile", "schema", "source_sha256", "data_stamp"})


def records(root: Path) -> list[Record]:
    if not root.is_dir():
        raise BadInput(
            f"{root}: there is no such folder (results are kept in runs/, below where the command was given)"
        )
    return list(find(root))


def summaries(found: Sequence[Record], root: Path) -> list[dict[str, Any]]:
    """One line each, with the settings in which it differs from any other of them that has such a setting."""
    values: dict[str, set[str]] = {}
    for record in found:
        for name, value in record.asked.items():
            values.setdefault(name, set()).add(repr(value))
    differ = [name for name, seen in values.items() if len(seen) > 1 and name not in _OWN_COLUMN | NOT_THE_EXPERIMENT]
    return [
        {**summary(record, root), "settings": {name: record.asked[name] for name in differ if name in record.asked}}
        for record in found
    ]


def summary(record: Record, root: Path) -> dict[str, Any]:
    """One run in a line."""
    name, score = record.score or (None, None)
    finished = record.finished_t
    return {
        "run": str(record.run_dir.relative_to(root)) if record.run_dir.is_relative_to(root) else str(record.run_dir),
        "task": Path(str(record.spec["task"])).name,
        "on": record.spec["on"],
        "outcome": record.outcome if record.completed else f"{record.outcome}: {record.why}",
        "score": score,
        "score_name": name,
        "training_s": record.training_s,
        "profile": None if record.spec.get("profile", "none") == "none" else record.spec["profile"],
        "finished": datetime.fromtimestamp(finished).isoformat(sep=" ", timespec="minutes") if finished else None,
    }


def shown(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The same as a table."""
    head = ["run", "task", "on", "settings that differ", "outcome", "test", "training", "finished"]
    return head, [words.summary(row) for row in rows]


def compare(a: Path, b: Path) -> dict[str, Any]:
    """Settings that differ and figures side by side. One run each: no interval, so no verdict."""
    first, second = load(a), load(b)
    settings = {
        name: [first.asked.get(name), second.asked.get(name)]
        for name in {**first.asked, **second.asked}
        if first.asked.get(name) != second.asked.get(name)
    }
    scores = [f"test.{name}" for name in first.test.names if name != "loss"]
    metrics = {name: [first.metric(name), second.metric(name)] for name in (*_COMPARED, *scores)}
    same = first.weights_hash is not None and first.weights_hash == second.weights_hash
    return {
        "schema": 1, "a": str(a), "b": str(b), "outcomes": [first.outcome, second.outcome], "settings": settings,
        "metrics": {name: pair for name, pair in metrics.items() if pair != [None, None]}, "same_weights": same,
        "verdict": words.ONE_RUN_EACH,
    }  # fmt: skip


def removable(names: Sequence[str], root: Path) -> list[Path]:
    """The folders behind the names, each a run or a study of ours; all that are not are problems at once."""
    paths: list[Path] = []
    wrong: list[str] = []
    for name in names:
        path = Path(name) if Path(name).exists() else root / name
        if not path.exists():
            wrong.append(f"{name}: there is no such run or study (looked in {root} as well)")
        elif not _is_ours(path):
            wrong.append(f"{name}: not a run or a study of ours; nothing was removed")
        else:
            paths.append(path)
    if wrong:
        raise BadInput(wrong)
    return paths


def _is_ours(path: Path) -> bool:
    if StudyDir(path).plan.exists():
        load_plan(StudyDir(path))
        return True
    return bool(RunDir(path).contents()) and not RunDir(path).foreign()


def remove(paths: Sequence[Path]) -> None:
    for path in paths:
        with locked(path / ".lock", why=f"{path}: a run or study is going on in it; nothing was removed"):
            remove_tree(path)
