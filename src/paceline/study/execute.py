"""One run from its spec to its record: write the directory, let `supervise` start it, gather what the ranks left."""

from __future__ import annotations

from pathlib import Path

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import empty, read_json, remove_file, remove_tree, write_json
from paceline.launch.plan import LAUNCHERS, Launcher, Plan, describe_plan
from paceline.launch.supervise import Tick, supervise
from paceline.records.facts import TaskFacts
from paceline.records.fingerprint import take
from paceline.records.gather import Ended, by_signal, gather
from paceline.records.layout import RunDir
from paceline.records.record import Record, load
from paceline.spec.run import Spec
from paceline.spec.tasks import task_file

_DESCRIBE_S = 300.0


def plan_of(spec: Spec, run: RunDir) -> Plan:
    launcher: Launcher = LAUNCHERS.load(spec.launcher)()
    return launcher.plan(spec, run)


def make_room(run: RunDir) -> None:
    """An unfinished attempt of ours gives way; a finished run, or somebody else's files, never."""
    if run.finished:
        raise BadInput(f"{run.path}: holds a finished run already; choose another --out, or remove it first")
    if empty(run.path):
        return
    if not run.path.is_dir() or not (run.spec.exists() or run.request.exists()):
        raise BadInput(f"{run.path}: is not empty and not a run of ours; choose another --out")
    remove_tree(run.path)


def run_once(spec: Spec, run: RunDir, *, tick: Tick | None = None, facts: TaskFacts | None = None) -> Record:
    """The record, whatever happened; only an interruption leaves the directory without one."""
    make_room(run)
    launcher: Launcher = LAUNCHERS.load(spec.launcher)()
    plan = launcher.plan(spec, run)
    own = task_file(spec.task)
    fingerprint = take(Path(own[0]).parent if own else Path.cwd())
    write_json(run.spec, spec.plain())
    write_json(run.plan, plan.plain())
    write_json(run.fingerprint, fingerprint)
    if facts is not None and facts.values == spec.params:  # a study describes its first cell; others have no facts
        write_json(run.facts, facts.plain())
    ended = supervise(plan, run, timeout_s=spec.timeout, tick=tick)
    words = [launcher.last_words(_text(run.log(process.who, "err"))) for process in plan.processes]
    ended = Ended(ended.started_t, ended.wall_s, ended.exits, ended.timeout_s, next(filter(None, words), None))
    remove_file(run.rendezvous)
    write_json(run.result, gather(run, spec, ended, fingerprint=fingerprint))
    return load(run.path)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def describe(
    task: str, params: dict[str, object], *, data: str | None, seed: int, timeout_s: float, run: RunDir
) -> TaskFacts:
    """What a user's task is, found out by a short process of its own; problems come back as BadInput."""
    make_room(run)
    write_json(run.request, {"schema": 1, "task": task, "params": params, "data": data, "seed": seed})
    limit = timeout_s or _DESCRIBE_S
    ended = supervise(describe_plan(run), run, timeout_s=limit)
    if run.facts.exists():
        found = read_json(run.facts)
        if "problems" in found:
            raise BadInput(found["problems"])
        return TaskFacts.load(found)
    if ended.timeout_s is not None:
        raise BadInput(
            f"{task}: did not say what it is within {limit:g} s (its import, model() or data hangs); ended by us"
        )
    code = ended.exits[0].code
    if code < 0:
        raise BadInput(f"{task}: {by_signal('the process that imported it', code).why}")
    tail = _text(run.log("describe", "err")).strip().splitlines()[-1:]
    raise RunFailed(
        f"{task}: the process that imported it left with exit code {code}{': ' + tail[0] if tail else ''}", kind="exit"
    )
