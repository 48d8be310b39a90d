"""Where everything lies inside a run directory and a study directory. Python code takes these names from here; a Slurm job's
script writes `job/began` and `job/ended` itself."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunDir:
    """The protocol between parent and worker: the spec goes in, events and weights come out, `result.json` comes last."""

    path: Path

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def fingerprint(self) -> Path:
        return self.path / "fingerprint.json"

    @property
    def request(self) -> Path:
        """What a short job is asked."""
        return self.path / "request.json"

    @property
    def facts(self) -> Path:
        """What a short job found out."""
        return self.path / "facts.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def weights(self) -> Path:
        return self.path / "checkpoints" / "final.safetensors"

    @property
    def best(self) -> Path:
        """The weights of the best evaluation, where they were asked for and the last are others."""
        return self.path / "checkpoints" / "best.safetensors"

    @property
    def profile(self) -> Path:
        """What the profiler saw, where one was asked for."""
        return self.path / "profile.json"

    @property
    def profile_page(self) -> Path:
        return self.path / "profile.html"

    def trace(self, rank: int) -> Path:
        """The same as torch writes it, call by call: for Perfetto."""
        return self.path / "traces" / f"rank_{rank:05d}.json.gz"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    def contents(self) -> list[Path]:
        """What lies in the folder, but for the lock."""
        return [path for path in self.path.iterdir() if path != self.lock] if self.path.is_dir() else []

    def foreign(self) -> bool:
        """Something in the folder that no run of ours puts there: then nothing in it is ours to remove."""
        known = {
            "spec.json",
            "plan.json",
            "fingerprint.json",
            "request.json",
            "facts.json",
            "result.json",
            "profile.json",
            "profile.html",
            "rendezvous",
        }
        known |= {"events", "logs", "checkpoints", "traces", "tensorboard", "job"}
        names = {path.name for path in self.contents()}
        return bool(names) and (not names <= known or not {"spec.json", "plan.json"} & names)

    @property
    def rendezvous(self) -> Path:
        """Where ranks of one machine meet; local to the attempt, removed afterwards."""
        return self.path / "rendezvous"

    def events(self, rank: int) -> Path:
        return self.path / "events" / f"rank_{rank:05d}.jsonl"

    def event_files(self) -> list[Path]:
        return sorted((self.path / "events").glob("rank_*.jsonl"))

    def launcher_events(self, machine: int = 0) -> Path:
        """What a mother process (spawn) saw of its ranks, or a machine of the others; one file each, as no disk appends for several."""
        return self.path / "events" / f"launcher_{machine:05d}.jsonl"

    def launcher_files(self) -> list[Path]:
        return sorted((self.path / "events").glob("launcher_*.jsonl"))

    @property
    def machines(self) -> Path:
        """What the machines of a run told each other before it started; there when all was well."""
        return self.path / "job" / "machines.json"

    def job(self, name: str) -> Path:
        """Of a Slurm job: script.sh, job.json (its number), job.log, began and ended (written by the job itself)."""
        return self.path / "job" / name

    def tensorboard(self, rank: int) -> Path:
        return self.path / "tensorboard" / f"rank_{rank:05d}"

    def log(self, who: str, stream: str) -> Path:
        return self.path / "logs" / f"{who}.{stream}"

    def rank_log(self, rank: int, stream: str) -> Path:
        return self.log(f"rank_{rank:05d}", stream)

    def telling_log(self, rank: int | None) -> Path | None:
        """Of a run that failed, the log that says most: this rank's, where one is known; else the launcher's, else the first rank's that
        was written to. None where nobody wrote anything."""
        errors = sorted((self.path / "logs").glob("*.err"), key=lambda path: path.name.startswith("rank_"))
        own = [] if rank is None else [self.rank_log(rank, "err")]
        others = [*errors, self.job("job.log"), *sorted((self.path / "logs").glob("*.out"))]
        return next((path for path in (*own, *others) if path.is_file() and path.stat().st_size), None)

    @property
    def finished(self) -> bool:
        return self.result.exists()

    @property
    def submitted(self) -> bool:
        """Its Slurm job waits, runs or is over, and nobody has made its record yet."""
        return self.job("job.json").exists() and not self.finished


@dataclass(frozen=True, slots=True)
class StudyDir:
    """A study: its plan, a folder a cell with a run directory a repeat, and the report."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "study.json"

    @property
    def lock(self) -> Path:
        return self.path / ".lock"

    def replaced(self, run: RunDir) -> Path:
        """Where a finished run goes that no longer stands for its cell, because what it read has changed. It is hidden: no result."""
        kept = self.path / ".replaced" / run.path.relative_to(self.path / "cells")
        return next(
            path for number in itertools.count() if not (path := kept.with_name(f"{kept.name}.{number}")).exists()
        )

    @property
    def trial(self) -> RunDir:
        """The short run a time estimate is made from; it is no result."""
        return RunDir(self.path / ".trial")

    def run(self, folder: str, repeat: int) -> RunDir:
        return RunDir(self.path / "cells" / folder / f"repeat_{repeat:03d}")

    @property
    def html(self) -> Path:
        return self.path / "report.html"
