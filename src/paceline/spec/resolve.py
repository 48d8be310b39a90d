"""From what the user typed to a complete spec: defaults filled in, every `auto` resolved, every problem found at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paceline.base.errors import BadInput
from paceline.base.names import unknown
from paceline.spec import settings, topology
from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.explain import problems
from paceline.spec.host import Host
from paceline.spec.rules.graph import updates_in_graph
from paceline.spec.rules.messages import carrier
from paceline.spec.rules.rule import Known
from paceline.spec.rules.table import check
from paceline.spec.run import Spec
from paceline.spec.tasks import Param

_EITHER = (
    ("batch", "batch_per_rank", "batch is the global batch, batch_per_rank lets it grow with the world"),
    ("epochs", "steps", "each says how long to train"),
)
_OF_OUR_OPTIMIZERS = ("weight_decay", "momentum", "nesterov", "update")
PROFILE_STEPS = 100  # batches a profile looks into unless it is told how many


def split(asked: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings, the rest): what is no setting must be a parameter of the task."""
    known = set(settings.names())
    return {k: v for k, v in asked.items() if k in known}, {k: v for k, v in asked.items() if k not in known}


def check_values(asked: Mapping[str, Any]) -> list[str]:
    """Problems with the settings by themselves: types, ranges, two that exclude each other."""
    wrong = [f"{a} and {b} were both given: {why}; give one" for a, b, why in _EITHER if a in asked and b in asked]
    try:
        settings.Settings.model_validate(dict(asked))
    except ValidationError as error:
        for place, text in problems(error, known=settings.names()):
            value = asked[str(place[0])]
            wrong.append(
                f"{place[0]}={value}: {text.replace(f'; got {value!r}', '')}"
            )  # the value stands there already
    return wrong


def parameters(params: tuple[Param, ...], raw: Mapping[str, Any], *, task: str) -> tuple[dict[str, Any], list[str]]:
    """Every parameter with its value, and what is wrong with those that were given."""
    wrong: list[str] = []
    names = [param.name for param in params]
    for name in raw:
        if name not in names:
            wrong.append(unknown(f"setting or parameter of {task}", name, [*names, *settings.names()]))
    values: dict[str, Any] = {}
    for param in params:
        try:
            if param.name in raw or param.type != "other":
                values[param.name] = param.convert(raw[param.name]) if param.name in raw else param.default
        except ValueError as error:
            wrong.append(str(error))
    return values, wrong


def complete(spec: Spec, asked: Mapping[str, Any], known: Known) -> Spec:
    """No `auto` left: everything that depends on the machine or the task is decided here, before `spec.json` is written."""
    host, change = known.host, dict[str, Any]()
    if spec.steps is not None:
        change["epochs"] = None
    if spec.batch_per_rank is not None:
        change["batch"] = topology.global_batch(spec.batch_per_rank, spec.topology, accumulate=spec.accumulate)
    if spec.data is not None:
        change["data"] = str(Path(spec.data).expanduser().resolve())
        change["data_stamp"] = _stamp(Path(change["data"]))
    if spec.weight_decay == "auto":
        change["weight_decay"] = OPTIMIZERS[spec.optimizer].weight_decay
    if spec.threads == "auto":
        change["threads"] = _threads(spec, host)
    if spec.cpus_per_task == "auto":
        change["cpus_per_task"] = change.get("threads", spec.threads) if spec.in_queue else 1
    if spec.device == "auto":
        change["device"] = _device(spec, host)
    if spec.graph_of == "auto":
        change["graph_of"] = GRAPHS[spec.graph].usual_of
    if spec.update == "auto":
        # what torch itself would take; said here, so that the record has it
        change["update"] = "foreach" if change.get("device", spec.device) == "cuda" else "single"
        if (as_graph := spec.model_copy(update=change)).is_step_graph:
            change["update"] = updates_in_graph(as_graph)[0]
    if spec.messages == "auto":
        change["messages"] = carrier(spec.model_copy(update=change), asked, known)
    if spec.activate is not None:
        change["activate"] = str(Path(spec.activate).expanduser().resolve())
    if "shuffle" not in asked and known.train is not None and known.train.kind == "stream":
        change["shuffle"] = False
    return spec.model_copy(update=change)


def _stamp(folder: Path) -> str | None:
    """Cheap enough to take every time, and different when a file was replaced. None where there is nothing to read."""
    if not folder.is_dir():
        return None
    rows = [
        (str(p.relative_to(folder)), p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()
    ]
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()[:16]


def _threads(spec: Spec, host: Host) -> int:
    """A Slurm job runs on other machines: there a rank has the CPUs it asked for, and one if it did not ask."""
    if spec.in_queue:
        return spec.cpus_per_task if isinstance(spec.cpus_per_task, int) else 1
    return topology.threads_per_rank(host.cores, spec.topology)


def _device(spec: Spec, host: Host) -> str:
    if spec.in_queue:
        return "cuda" if spec.gres and "gpu" in spec.gres else "cpu"
    return "cuda" if host.usable_gpus >= spec.topology.processes else "cpu"


def resolve(
    task: str,
    asked: Mapping[str, Any],
    *,
    params: Mapping[str, Any],
    defaults: Mapping[str, Any],
    known: Known,
    source_sha256: str | None = None,
) -> Spec:
    """The complete spec, or BadInput with all that is wrong with it. `asked` holds settings only."""
    wrong = check_values(asked)
    if wrong:
        raise BadInput(wrong)
    if asked.get("profile", "none") != "none" and not {"steps", "epochs"} & set(asked):
        asked = {**asked, "steps": PROFILE_STEPS}
    own = {name: value for name, value in defaults.items() if not _overruled(name, asked)}
    try:
        spec = Spec.model_validate(
            {
                **own,
                **asked,
                "task": task,
                "params": dict(params),
                "source_sha256": source_sha256,
                "probe": known.verdict,
                "inputs": known.inputs,
            }
        )
    except ValidationError as error:
        raise BadInput(
            [f"{task}: its default {p[0]}: {text}" for p, text in problems(error, known=settings.names())]
        ) from None
    if OPTIMIZERS[spec.optimizer].is_tasks and (lost := [name for name in _OF_OUR_OPTIMIZERS if name in asked]):
        raise BadInput(
            f"{' '.join(f'{name}={asked[name]}' for name in lost)} with optimizer={spec.optimizer}: the task builds its optimizer, and "
            "only lr reaches it; say it in the task's optimizer(model, lr), or name an optimizer of ours"
        )
    spec = complete(spec, {**defaults, **asked}, known)
    assert not spec.autos(), f"unresolved: {spec.autos()}"
    broken = check(spec, known)
    if broken:
        raise BadInput(broken)
    return spec


def _overruled(name: str, asked: Mapping[str, Any]) -> bool:
    """A task's default batch gives way to an asked batch_per_rank, its epochs to asked steps."""
    return any(name in pair and any(other in asked for other in pair if other != name) for *pair, _ in _EITHER)
