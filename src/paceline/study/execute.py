"""One run from its spec to its record: write the directory, let `supervise` start it, gather what the ranks left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import locked, read_json, remove_file, remove_tree, write_json
from paceline.launch.plan import LAUNCHERS, Launcher, Plan, describe_plan
from paceline.launch.supervise import Tick, supervise
from paceline.launch.warm import Warm
from paceline.records.facts import TaskFacts
from paceline.records.fingerprint import take
from paceline.records.judge import Ended, by_signal
from paceline.records.layout import RunDir
from paceline.records.outcome import failed
from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.run import Spec
from paceline.spec.tasks import task_file

if TYPE_CHECKING:
    from paceline.records.record import Record

_DESCRIBE_S = 300.0
HELP_S = 60.0


@dataclass(frozen=True, slots=True)
class Since:
    """When a command began, and how long its describe jobs and their probes took: the wall time includes all three."""

    began_t: float
    described_s: float = 0.0
    probed_s: float = 0.0

    def longer(self, ended: Ended) -> Ended:
        before = max(0.0, ended.started_t - self.began_t)
        rest = max(0.0, before - self.described_s - self.probed_s)
        parts = {"plan": rest, "describe": self.described_s, "probe": self.probed_s}
        return replace(
            ended, started_t=ended.started_t - before, wall_s=ended.wall_s + before,
            before={name: seconds for name, seconds in parts.items() if seconds},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RenderedRun:
    """A run with the plan that will start it: the plan that is shown, the one that is stored and the one that is
    started are the same."""

    spec: Spec
    run: RunDir
    launcher: Launcher
    plan: Plan
    facts: TaskFacts | None = None


def render(spec: Spec, run: RunDir, *, facts: TaskFacts | None = None) -> RenderedRun:
    launcher: Launcher = LAUNCHERS.load(spec.launcher)()
    return RenderedRun(spec, run, launcher, launcher.plan(spec, run), facts)


def check_folder(run: RunDir) -> None:
    """A folder is ours to use when it is new, empty, or holds an unfinished run and nothing else."""
    if run.finished:
        raise BadInput(f"{run.path}: holds a finished run already; choose another --out, or remove it first")
    if run.submitted:
        raise BadInput(
            f"{run.path}: holds another run whose Slurm job is not picked up yet; `paceline report` does that, or choose another --out"
        )
    if not run.path.exists():
        return
    if not run.path.is_dir() or run.foreign():
        raise BadInput(f"{run.path}: is not empty and not a run of ours; choose another --out")


@contextlib.contextmanager
def claimed(run: RunDir) -> Generator[None]:
    """The folder for ourselves and empty: an unfinished attempt of ours gives way; a finished run, or somebody else's files, never.

    It is looked at under the lock: another command may have finished in it since this one was given.
    """
    with held(run):
        check_folder(run)
        for path in run.contents():
            remove_tree(path) if path.is_dir() else remove_file(path)
        yield


def held(run: RunDir) -> contextlib.AbstractContextManager[None]:
    return locked(run.lock, why=f"{run.path}: another paceline run is going on in this folder")


def run_here(
    rendered: RenderedRun, *, tick: Tick | None = None, since: Since | None = None, warm: Warm | None = None
) -> Record:
    """The record, whatever happened; only an interruption leaves the directory without one.

    `since`: where the run is all that a command does, its wall time begins with the command. `warm`: where ranks may be forked from.
    """
    with claimed(rendered.run):
        write_down(rendered)
        ended = _supervised(rendered, tick, warm)
        return conclude(rendered.spec, rendered.run, rendered.launcher, since.longer(ended) if since else ended)


def write_down(rendered: RenderedRun) -> None:
    """Everything the workers read, before any of them is started."""
    spec, run, facts = rendered.spec, rendered.run, rendered.facts
    own = task_file(spec.task)
    write_json(run.plan, rendered.plan.plain())
    write_json(run.fingerprint, take(Path(own[0]).parent if own else Path.cwd()))
    if facts is not None and facts.values == spec.params:  # a study describes its first cell; others have no facts
        write_json(run.facts, facts.plain())
    write_json(run.spec, spec.plain())  # last: machines that help by hand wait for it


def conclude(spec: Spec, run: RunDir, launcher: Launcher, ended: Ended) -> Record:
    """From how it ended to its record: what the ranks wrote, and the launcher's own last words."""
    # Not before the ranks are started: the classes of a record take time to make.
    from paceline.records.gather import gather
    from paceline.records.record import load

    logs = [path for path in (run.path / "logs").glob("*.err") if not path.name.startswith("rank_")]
    words = [launcher.last_words(tail(path)) for path in sorted(logs)]
    ended = replace(ended, said=next(filter(None, [ended.said, *words]), None))
    remove_file(run.rendezvous)
    write_json(run.result, gather(run, spec, ended, fingerprint=read_json(run.fingerprint)).plain)
    return load(run.path)


def needs_compiler(spec: Spec) -> bool:
    return GRAPHS[spec.graph].needs_compiler


def _supervised(rendered: RenderedRun, tick: Tick | None, warm: Warm | None = None) -> Ended:
    """A run that cannot even be started is a failed run, not the end of a study."""
    started_t, spec = time.time(), rendered.spec
    try:
        return supervise(
            rendered.plan, rendered.run, timeout_s=spec.timeout, tick=tick, warm=warm, graphs=needs_compiler(spec)
        )
    except RunFailed as error:
        return Ended(started_t, time.time() - started_t, said=failed(error.kind, error.why))


def help_out(rendered: RenderedRun, *, tick: Tick | None = None) -> Record:
    """On a machine other than the first, where the user starts each by hand: it takes part, and the first machine makes
    the record."""
    from paceline.records.record import load

    spec, run = rendered.spec, rendered.run
    if run.finished:
        raise BadInput(f"{run.path}: holds a finished run already; choose another --out, or remove it first")
    _wait_for(lambda: _same_spec(run, spec), HELP_S, tick, "waiting for machine 0 to start the same command")
    if not _same_spec(run, spec):
        raise BadInput(
            f"machine 0 did not start this run in {run.path} within {HELP_S:g} s: give the same command there with machine=0, "
            "and --out on a disk that both share"
        )
    _supervised(rendered, tick)
    _wait_for(lambda: run.finished, HELP_S, tick, "waiting for machine 0 to write the record")
    if not run.finished:
        raise RunFailed(f"machine 0 has written no record into {run.path}: it, or the link to it, is down", kind="lost")
    return load(run.path)


def _same_spec(run: RunDir, spec: Spec) -> bool:
    return run.spec.exists() and Spec.model_validate(read_json(run.spec)).key() == spec.key()


def _wait_for(done: Callable[[], bool], seconds: float, tick: Tick | None, words: str) -> None:
    began = time.monotonic()
    while not done() and (elapsed := time.monotonic() - began) < seconds:
        if tick is not None:
            tick(elapsed, words)
        time.sleep(0.2)


def tail(path: Path, most: int = 65536) -> str:
    """The end of a log, however long a task has made it."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode(errors="replace")


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """What a describe job is to find out: what this task is with these parameters and data. `outline`: its embedding
    tables will be cut over ranks, so no process, this one included, should hold a whole table."""

    task: str
    params: dict[str, object]
    data: str | None
    seed: int
    outline: bool = False
    timeout_s: float = 0.0

    def plain(self) -> dict[str, object]:
        return {
            "schema": 1,
            "task": self.task,
            "params": self.params,
            "data": self.data,
            "seed": self.seed,
            "outline": self.outline,
        }


def describe(asked: TaskQuestion, run: RunDir, *, warm: Warm | None = None) -> TaskFacts:
    """Finds out what a user's task is, in a short process of its own; problems come back as BadInput. `warm`: what is
    imported for this, the ranks need not import again."""
    write_json(run.request, asked.plain())
    limit = asked.timeout_s or _DESCRIBE_S
    ended = supervise(describe_plan(run), run, timeout_s=limit, warm=warm)
    if run.facts.exists():
        facts = read_json(run.facts)
        if "problems" in facts:
            raise BadInput(facts["problems"])
        return TaskFacts.load(facts)
    if ended.timeout_s is not None:
        raise BadInput(
            f"{asked.task}: did not say what it is within {limit:g} s (its import, model() or data hangs); ended by us"
        )
    code = ended.exits[0].code
    if code < 0:
        raise BadInput(f"{asked.task}: {by_signal('the process that imported it', code).why}")
    last = tail(run.log("describe", "err")).strip().splitlines()[-1:]
    raise RunFailed(
        f"{asked.task}: the process that imported it left with exit code {code}{': ' + last[0] if last else ''}",
        kind="exit",
    )
