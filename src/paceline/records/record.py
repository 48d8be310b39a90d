"""The record of one run: `result.json`, typed, with the events beside it. Statistics over records are made in `analysis/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.base.errors import BadInput
from paceline.base.files import read_json
from paceline.records.applied import Applied
from paceline.records.events import Event, read
from paceline.records.layout import RunDir
from paceline.records.measured import Graph, Memory, Rank, Traffic
from paceline.records.origin import Fingerprint, SlurmJob
from paceline.records.profile import Profile
from paceline.records.section import Place, Scores, Section
from paceline.records.spent import Cost, Energy
from paceline.records.timing import Best, EpochRow, Evaluation, Steady, Stopped, Time
from paceline.spec.inputs import Inputs
from paceline.spec.run import SCHEMA

# In a spec, and nothing that anybody typed.
_NOT_TYPED = frozenset({"params", "probe", "inputs", "again", "chosen"})
# What every record has, completed or not.
_NEEDED = frozenset({"schema", "outcome", "kind", "why", "key", "spec", "train", "test", "time", "ranks", "throughput"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnScore(Section):
    """Which score the task calls its own, and which way it is good."""

    name: str | None = None
    better: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution(Section):
    """What a reader must know beside the figures."""

    kind: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Record(Section):
    """`record.test["accuracy"]`, `record.time.wall_s`, `record.metric("test.accuracy")`, `record.plain` for the JSON of all of it.

    A field is a key of `result.json`; a new one is added here and filled in `gather.py`.
    """

    schema: int = SCHEMA
    outcome: str = "completed"
    kind: str | None = None
    why: str | None = None
    log: str | None = None  # of a run that failed: the file that says more, in its folder
    folder: str | None = field(default=None, metadata={"key": "run_dir"})
    key: str | None = None
    spec: dict[str, Any] = field(default_factory=dict[str, Any])
    applied: Applied | None = None
    train: Scores = field(default_factory=Scores)
    test: Scores = field(default_factory=Scores)
    own_score: OwnScore | None = field(default=None, metadata={"key": "score"})
    ranks: tuple[Rank, ...] = ()
    time: Time | None = None
    steps: int | None = None
    samples: int | None = None
    graph: Graph | None = None
    throughput: float | None = None
    steady: Steady | None = None
    memory: Memory | None = None
    traffic: Traffic | None = None
    energy: Energy | None = None
    cost: Cost | None = None
    weights: str | None = None
    weights_hash: str | None = None
    best: Best | None = None  # where keep=best
    num_parameters: int | None = None
    history: tuple[EpochRow, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    stopped: Stopped | None = None  # before its planned length
    warnings: tuple[Caution, ...] = ()
    probe: dict[str, Any] | None = None  # of a user's task: how its loss and scores recombine
    restarts: int = 0
    queue: SlurmJob | None = None
    fingerprint: Fingerprint | None = None
    finished_t: float | None = None
    took_s: float | None = None  # of a profile only: it has no `time`
    profile: Profile | None = None

    def __repr__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"Record({self.spec.get('task')!r} on {self.spec.get('on')}, {self.outcome}{why})"

    @property
    def completed(self) -> bool:
        return self.outcome == "completed"

    @property
    def asked(self) -> dict[str, Any]:
        """Settings and the task's parameters side by side, as they are typed."""
        settings = {name: value for name, value in self.spec.items() if name not in _NOT_TYPED}
        return {**settings, **(self.spec.get("params") or {})}

    @property
    def inputs(self) -> Inputs | None:
        """What a run of a user's task depended on."""
        found = self.spec.get("inputs")
        return None if found is None else Inputs.model_validate(found)

    @property
    def run_dir(self) -> Path:
        assert self.folder is not None, "a run that a rule refused has no folder"
        return Path(self.folder)

    @property
    def log_path(self) -> Path | None:
        return None if self.log is None or self.folder is None else self.run_dir / self.log

    @property
    def score(self) -> tuple[str, float] | None:
        """The task's main score on the test set, by name."""
        name = self.own_score.name if self.own_score else None
        value = self.test.get(str(name))
        return (str(name), float(value)) if value is not None else None

    @property
    def training_s(self) -> float | None:
        return self.time.training_s if self.time else None

    @property
    def duration_s(self) -> float:
        """How long any run took, from its first process to the end of its last: for estimates of what is still to come."""
        seconds = self.time.wall_s if self.time else self.took_s
        return float(seconds or 0.0)

    def metric(self, name: str) -> float | None:
        """A number by its dotted path in `result.json`, None where the run has none."""
        value: Any = self.plain
        while name and isinstance(value, Mapping):
            section: dict[str, Any] = {**value}
            # A score's own name may hold a dot, and so may a module's: the longest name that fits.
            word = max((key for key in section if f"{name}.".startswith(f"{key}.")), key=len, default=name)
            value, name = section.get(word), name[len(word) + 1 :]
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def events(self) -> Iterator[tuple[int, Event]]:
        """(rank, event) of every line every rank wrote."""
        for path in RunDir(self.run_dir).event_files():
            for event in read(path):
                yield int(path.stem.removeprefix("rank_")), event


def parse(document: Any, *, file: str = "the record") -> Record:
    """The typed record of a JSON document; BadInput with the key of whatever is not of its type. Keys it does not know are kept."""
    return Record.read(document, Place(file))


def load(path: Path) -> Record:
    """The record of a finished run directory; its paths are where it lies now, not where it was made."""
    run = RunDir(path)
    if not run.finished:
        raise BadInput(f"{path}: not a finished run (no {run.result.name} in it)")
    value = read_json(run.result)
    document: dict[str, Any] = {**value} if isinstance(value, dict) else {}
    if lacking := sorted(_NEEDED - set(document)):
        raise BadInput(f"{run.result}: not a record of ours ({', '.join(lacking)} missing); the file is damaged")
    if document["schema"] != SCHEMA:
        raise BadInput(
            f"{run.result}: written by another version of Paceline (schema {document['schema']}, this one reads {SCHEMA})"
        )
    document |= {"run_dir": str(path), "weights": str(run.weights) if run.weights.exists() else None}
    found = parse(document, file=str(run.result))
    if found.best is None or found.best.weights is None:
        return found
    best = {**found.best.plain, "weights": str(run.weights.with_name(Path(found.best.weights).name))}
    return parse({**document, "best": best}, file=str(run.result))


def find(root: Path) -> Iterator[Record]:
    """Every finished run below `root`; hidden folders (trials, describe jobs) are no results."""
    for result in sorted(root.rglob("result.json")):
        if not any(part.startswith(".") for part in result.relative_to(root).parts):
            yield load(result.parent)
