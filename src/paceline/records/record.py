"""The record of one run: `result.json` with the events beside it. Read-only; statistics over records are made in `analysis/`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import BadInput
from paceline.base.files import read_json
from paceline.records.events import Event, read
from paceline.records.layout import RunDir
from paceline.spec.run import SCHEMA

# What every record has, completed or not.
_NEEDED = frozenset({"schema", "outcome", "kind", "why", "key", "spec", "train", "test", "time", "ranks", "throughput"})


@dataclass(frozen=True, slots=True)
class Record:
    """`record["test"]["accuracy"]`, `record.metric("test.accuracy")`, `record.plain` for all of it."""

    plain: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.plain[name]

    def __repr__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"Record({self.plain['spec'].get('task')!r} on {self.plain['spec'].get('on')}, {self.outcome}{why})"

    @property
    def outcome(self) -> str:
        return self.plain["outcome"]

    @property
    def completed(self) -> bool:
        return self.outcome == "completed"

    @property
    def kind(self) -> str | None:
        return self.plain.get("kind")

    @property
    def why(self) -> str | None:
        return self.plain.get("why")

    @property
    def spec(self) -> dict[str, Any]:
        return self.plain["spec"]

    @property
    def asked(self) -> dict[str, Any]:
        """Settings and the task's parameters side by side, as they are typed."""
        return {
            **{name: value for name, value in self.spec.items() if name != "params"},
            **(self.spec.get("params") or {}),
        }

    @property
    def run_dir(self) -> Path:
        return Path(self.plain["run_dir"])

    @property
    def test(self) -> dict[str, Any]:
        return self.plain["test"] or {}

    @property
    def train(self) -> dict[str, Any]:
        return self.plain["train"] or {}

    @property
    def time(self) -> dict[str, Any]:
        return self.plain["time"] or {}

    @property
    def score(self) -> tuple[str, float] | None:
        """The task's main score on the test set, by name."""
        named: dict[str, Any] = self.plain.get("score") or {}
        value = self.test.get(str(named.get("name")))
        return (str(named["name"]), float(value)) if value is not None else None

    def metric(self, name: str) -> float | None:
        """A number by its dotted path, None where the run has none."""
        value: Any = self.plain
        while name and isinstance(value, dict):
            found: dict[str, Any] = {**value}
            # A score's own name may hold a dot, and so may a module's: the longest name that fits.
            word = max((key for key in found if f"{name}.".startswith(f"{key}.")), key=len, default=name)
            value, name = found.get(word), name[len(word) + 1 :]
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def events(self) -> Iterator[tuple[int, Event]]:
        """(rank, event) of every line every rank wrote."""
        run = RunDir(self.run_dir)
        for path in run.event_files():
            for event in read(path):
                yield int(path.stem.removeprefix("rank_")), event


def load(path: Path) -> Record:
    """The record of a finished run directory; its paths are where it lies now, not where it was made."""
    run = RunDir(path)
    if not run.finished:
        raise BadInput(f"{path}: not a finished run (no {run.result.name} in it)")
    value = read_json(run.result)
    found: set[str] = set(value) if isinstance(value, dict) else set()  # pyright: ignore[reportUnknownArgumentType]
    if lacking := sorted(_NEEDED - found):
        raise BadInput(f"{run.result}: not a record of ours ({', '.join(lacking)} missing); the file is damaged")
    if value["schema"] != SCHEMA:
        raise BadInput(
            f"{run.result}: written by another version of Paceline (schema {value['schema']}, this one reads {SCHEMA})"
        )
    plain: dict[str, Any] = {**value, "run_dir": str(path)}
    plain["weights"] = str(run.weights) if run.weights.exists() else None
    return Record(plain)


def find(root: Path) -> Iterator[Record]:
    """Every finished run below `root`; hidden folders (trials, describe jobs) are no results."""
    for result in sorted(root.rglob("result.json")):
        if not any(part.startswith(".") for part in result.relative_to(root).parts):
            yield load(result.parent)
