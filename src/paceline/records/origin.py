"""Where a record comes from, typed: machine, versions and source, and the Slurm job, if it ran in one."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.records.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Git(Section):
    commit: str | None = None
    changed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint(Section):
    """As `fingerprint.py` takes it."""

    host: str | None = None
    system: str | None = None
    cpu: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    python: str | None = None
    versions: dict[str, str | None] | None = field(default_factory=dict[str, str | None])
    git: Git | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob(Section):
    """Which job a run was in, how long it waited for its turn, and on which machines it ran."""

    job: int
    waited_s: float = 0.0
    hosts: tuple[str, ...] = ()
