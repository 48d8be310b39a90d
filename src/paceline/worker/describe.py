"""The describe job: import a user's task and say what the parent must know before a launch. It trains nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import read_json, write_json
from paceline.base.names import unknown
from paceline.records.facts import DataFacts, TaskFacts
from paceline.records.layout import RunDir
from paceline.spec.inputs import source_digest
from paceline.spec.settings import names
from paceline.spec.tasks import task_file
from paceline.spec.verdict import Note, Verdict
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.optim.sparse import sparse_parameters
from paceline.worker.probe.kept import KeptVerdict
from paceline.worker.probe.leak import in_common
from paceline.worker.probe.probe import probe
from paceline.worker.probe.reads import Reads
from paceline.worker.same_data import Look, look
from paceline.worker.sharding.tables import build_outline
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.given import given, make_feed
from paceline.worker.tasks.hooks import parameters_of
from paceline.worker.tasks.load import Definition, find, values_for
from paceline.worker.tasks.stream_feed import ENDLESS, StreamFeed
from paceline.worker.tasks.task import Task, users_code
from paceline.worker.tasks.usual import usual_loss, usual_score
from paceline.worker.world.seed import one_thread, seed_everything

_KEPT = 16  # samples of a Dataset whose digests are kept in the spec
_MOST_PARAMETERS = 1 << 26  # of a model whose tables will be cut over ranks: a larger one is not built here


def describe(run: RunDir) -> None:
    """Parameters, sizes, defaults, layers, the GPUs. Writes facts.json."""
    asked: dict[str, Any] = read_json(run.request)
    own = task_file(asked["task"])
    if own is None:
        facts, _ = _described(asked)
    else:
        source = Path(own[0]).resolve()
        data = asked["data"] and Path(asked["data"]).expanduser()
        with Reads(source, run.path, data=data) as reads:
            kept = KeptVerdict({**asked, "task": [str(source), own[1]]}, reads.inputs)
            facts, looks = _described(asked, kept)
        inputs = reads.inputs().model_copy(update={"samples": looks, "seed": asked["seed"]})
        inputs = kept.with_what_was_read_then(inputs)
        kept.keep(inputs)
        facts = replace(
            facts, source_sha256=source_digest(inputs.modules, source), inputs=inputs.model_dump(mode="json")
        )
    write_json(run.facts, facts.plain())


def _described(asked: dict[str, Any], kept: KeptVerdict | None = None) -> tuple[TaskFacts, dict[str, Any]]:
    """And some digests of the samples of each split, of a user's task."""
    seed_everything(asked["seed"])  # before the import and before each of its functions, as in the ranks
    definition = find(asked["task"])
    values = _checked(definition, asked)
    task = definition.build(values, asked["data"])
    # data first, as in the ranks: the model may be made with what it has shown (a vocabulary)
    train, wanted, said = _feed(task, "train", asked["seed"])
    test, wanted_test, said_test = _feed(task, "test", asked["seed"])
    seed_everything(asked["seed"])
    model = build_outline(task) if asked.get("outline") else task.build_model()
    defaults = {**wanted, **wanted_test, **definition.defaults}
    if task.own_rate is not None:
        with users_code(f"{task.name}: the rate of its optimizer", task.source):
            defaults = {"lr": task.own_rate(model), **defaults}
    facts = TaskFacts(
        params=definition.params, values=values, defaults=defaults, takes_data=definition.takes_data,
        train=DataFacts(train.kind, _num(train)), test=DataFacts(test.kind, _num(test)),
        num_parameters=sum(p.numel() for p in model.parameters()),
        source_sha256=None, knows_better=task.better is not None or task.score is usual_score,
        layers=_layers(model), capability=_capability(),
        has_tensor_plan=task.tensor_plan is not None, has_optimizer=task.optimizer is not None or task.optimizers is not None,
        has_schedule=task.schedule is not None, has_step=task.step is not None,
        sets_by_step=task.on_step is not None or task.on_epoch is not None, num_sparse=len(sparse_parameters(model)),
        num_tables=sum(isinstance(module, torch.nn.Embedding) for module in model.modules()),
    )  # fmt: skip
    looks: dict[str, Any] = {}
    if kept is not None:
        looks = {name: (_num(feed), _digests(look(feed))) for name, feed in (("train", train), ("test", test))}
        watch = Stopwatch("probe")
        # the last of all: a probe leaves the model as it may be
        verdict = kept.or_made(looks, lambda: _probed(facts, task, train, model, asked))
        # what a look at the data itself finds is never kept
        verdict = verdict.model_copy(update={"notes": (*verdict.notes, *said, *said_test, *in_common(train, test))})
        facts = replace(facts, probe=verdict.model_dump(mode="json"), probe_s=watch.elapsed())
    return facts, looks


def _digests(looked: Look) -> tuple[tuple[str, ...], ...]:
    return tuple(map(tuple, looked.samples[:_KEPT]))


def _checked(definition: Definition, asked: dict[str, Any]) -> dict[str, Any]:
    """The task's parameters with their values, or BadInput with every problem."""
    known = [param.name for param in definition.params]
    wrong = [unknown("setting or parameter", name, [*known, *names()]) for name in asked["params"] if name not in known]
    values: dict[str, Any] = {}
    for param in definition.params:
        try:
            values |= values_for((param,), asked["params"])
        except ValueError as error:
            wrong.append(str(error))
    lacking = [param.name for param in definition.params if param.required and param.name not in asked["params"]]
    wrong += [f"{definition.name}: parameter {name!r} has no default: give {name}=..." for name in lacking]
    wrong += [
        f"{definition.name}: its parameter {name!r} has the name of a setting, so it would never be given: rename it"
        for name in known
        if name in names()
    ]
    if asked["data"] is not None and not definition.takes_data:
        wrong.append(f"{definition.name}: takes no data=; add a parameter `data` to it")
    wrong += [
        f"{definition.name}: its defaults name an {unknown('setting', key, names())}"
        for key in definition.defaults
        if key not in names()
    ]
    if wrong:
        raise BadInput(wrong)
    return values


def _feed(task: Task, split: str, seed: int) -> tuple[Feed, dict[str, Any], tuple[Note, ...]]:
    """And what a loader that the task returned asks for, by settings, and what of it is not used."""
    what, is_train = f"{task.name}: {split}_data()", split == "train"
    seed_everything(seed)
    with one_thread(), users_code(what, task.source):
        data = task.train_data() if is_train else task.test_data()
        taken = given(data, what)
        feed = make_feed(data, what=what, collate=task.collate, most=ENDLESS if is_train else None)
    asks = taken.asks if is_train else {"test_batch": taken.asks["batch"]} if "batch" in taken.asks else {}
    return feed, asks, taken.notes if is_train else ()


def _num(feed: Feed) -> int | None:
    return None if isinstance(feed, StreamFeed) and not feed.ends else feed.num


def _probed(facts: TaskFacts, task: Task, feed: Feed, model: torch.nn.Module, asked: dict[str, Any]) -> Verdict:
    """`asked["outline"]`: the model was only outlined, because its tables may be too large for one process to hold them all."""
    outline, seed = bool(asked.get("outline")), asked["seed"]
    if outline and facts.num_parameters > _MOST_PARAMETERS:
        usual = task.loss is usual_loss and "labels" not in parameters_of(model.forward)  # or it has a loss of its own
        why = None if usual else "its embedding tables are not built in one process"
        return Verdict(loss="ratio" if usual else "mean", score_kind="whole", unknown=why)
    try:
        with users_code(f"{task.name} (a look at its loss and scores)", task.source):
            return probe(task, feed, None if outline else model, couples=task.couples_samples, seed=seed)
    except RunFailed as error:
        if error.why.startswith(task.name):
            raise
        raise RunFailed(f"{task.name}: {error.why}", kind=error.kind) from error


def _capability() -> tuple[int, int] | None:
    """Of the GPUs here, the least: ranks are spread over all of them."""
    if not torch.cuda.is_available():
        return None
    return min(torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count()))


def _layers(model: torch.nn.Module) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": type(module).__name__,
            "shapes": [list(p.shape) for p in module.parameters(recurse=False)],
        }
        for name, module in model.named_modules()
        if not list(module.children())
    ]
