"""From a task and `key=value` words to complete specs: the part that `run` and `study` share."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import scratch
from paceline.base.names import nearest
from paceline.commands.kept_facts import KeptFacts
from paceline.commands.trial import Way, chosen, possible, ways
from paceline.launch.warm import Warm
from paceline.records.facts import TaskFacts
from paceline.records.layout import RunDir
from paceline.spec import settings
from paceline.spec.axes.optimizers import OWN
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.host import COMPILERS, Host, here
from paceline.spec.inputs import Inputs
from paceline.spec.resolve import check_values, parameters, resolve, split
from paceline.spec.rules.precision import NEED_FACTS
from paceline.spec.rules.rule import DataShape, Known
from paceline.spec.run import Spec
from paceline.spec.tasks import BUILTIN, Param, task_file
from paceline.spec.verdict import Verdict
from paceline.study.execute import TaskQuestion, describe

if TYPE_CHECKING:  # the classes of a record take time to make, and the ranks are not started yet
    from paceline.records.record import Record


def words(pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` words as typed; all that are not such words are problems at once."""
    asked: dict[str, str] = {}
    wrong: list[str] = []
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            wrong.append(f"{pair!r}: settings are given as name=value, for example batch=64")
        elif key in asked:
            wrong.append(f"{key} was given twice")
        elif not value:
            wrong.append(f"{key}= has no value")
        asked[key] = value
    if wrong:
        raise BadInput(wrong)
    return asked


_TRIED = {"graph": "eager", "kernel": "torch"}  # settings that a trial may decide, and what they are unless said


class TaskDescriptions:
    """The describe jobs of one command, each made once: a study asks for the same task again and again."""

    def __init__(self, warm: Warm | None = None, *, kept_on: Host | None = None) -> None:
        """`kept_on`: an answer that a run has confirmed on this machine is good for the next one (`commands/kept_facts.py`)."""
        self.warm, self._kept_on = warm, kept_on
        self._facts: dict[str, TaskFacts] = {}
        self._kept: dict[str, KeptFacts] = {}
        self.seconds = self.probed_s = 0.0

    @property
    def first(self) -> TaskFacts | None:
        return next(iter(self._facts.values()), None)

    @staticmethod
    def _key(params: dict[str, Any], given: settings.Settings) -> str:
        data = given.data and Path(given.data).expanduser().resolve()
        return repr((sorted((name, str(value)) for name, value in params.items()), data))

    def before(self, params: dict[str, Any], given: settings.Settings) -> TaskFacts | None:
        """The facts of a describe job that was already made for these parameters."""
        return self._facts.get(self._key(params, given))

    def at(self, task: str, params: dict[str, Any], given: settings.Settings) -> TaskFacts:
        """`given` is used for the folder of the data, the seed of the weights and the time limit."""
        key = self._key(params, given)
        if key not in self._facts:
            began = time.monotonic()
            asked = TaskQuestion(
                task, params, data=given.data, seed=given.seed, timeout_s=given.timeout,
                outline=SHARDINGS[given.sharding].cuts_tables,
            )  # fmt: skip
            self._facts[key] = self._before_or_now(key, asked)
            self.seconds += time.monotonic() - began
            self.probed_s += self._facts[key].probe_s
        return self._facts[key]

    def _before_or_now(self, key: str, asked: TaskQuestion) -> TaskFacts:
        if self._kept_on is not None:
            self._kept[key] = KeptFacts(asked.plain(), self._kept_on)
            if (facts := self._kept[key].found()) is not None:
                return facts
        with scratch() as folder:
            return describe(asked, RunDir(folder / "describe"), warm=self.warm)

    def settle(self, record: Record) -> None:
        """A run has ended that was planned with these answers: whether they are good for the next one."""
        for key, kept in self._kept.items():
            kept.settle(self._facts[key], record)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task whose parameters and data kind are known: ready to make specs of it."""

    task: str
    params: tuple[Param, ...]
    defaults: Mapping[str, Any]
    known: Known
    source_sha256: str | None = None
    descriptions: TaskDescriptions = field(default_factory=TaskDescriptions)

    @property
    def facts(self) -> TaskFacts | None:
        return self.descriptions.first

    @property
    def described_s(self) -> float:
        """How long the describe jobs took, without their probes."""
        return self.descriptions.seconds - self.probed_s

    @property
    def probed_s(self) -> float:
        return self.descriptions.probed_s

    def spec(self, asked: Mapping[str, Any], *, look: bool = True) -> Spec:
        """The complete spec for these words, or BadInput with every problem.

        Where layers or GPUs decide (fp8), the rules that need no look come first: a look takes seconds. `look=False`: only those.
        """
        own, rest = split(asked)
        values, wrong = parameters(self.params, rest, task=self.task)
        wrong = check_values(own) + wrong
        if wrong:
            raise BadInput(wrong)
        graph, kernel = (str({**self.defaults, **own}.get(name, usual)) for name, usual in _TRIED.items())
        if "auto" in (graph, kernel):
            return self._tried(own, rest, graph=graph, kernel=kernel, look=look)
        return self._certain(own, rest, values, look=look)

    def _tried(self, own: Mapping[str, Any], rest: Mapping[str, Any], *, graph: str, kernel: str, look: bool) -> Spec:
        """A trial decides among what the rules allow. Without a look, the first of them is taken, which is certain to
        work."""

        def spec(way: Way) -> Spec:
            of = meant.get("graph_of", "auto") if way["graph_of"] == "auto" else way["graph_of"]
            return self.spec({**own, **way, "graph_of": of, **rest}, look=look)

        meant = {**self.defaults, **own}
        if own.get("graph_of", "auto") != "auto" and graph == "auto":
            raise BadInput(f"graph_of={own['graph_of']} with graph=auto: the trial decides both; leave graph_of out")
        device = str(meant.get("device", "auto"))
        device = ("cuda" if self.known.host.usable_gpus else "cpu") if device == "auto" else device
        plain, *others = possible(ways(graph, kernel, device), spec)
        if plain.in_queue:
            raise BadInput(
                f"graph={graph} kernel={kernel} with launcher={plain.launcher}: the trial would run on this machine, and the job on "
                "others; say which graph and kernel it should be"
            )
        if plain.machine is not None:
            raise BadInput(
                f"graph={graph} kernel={kernel} with machine={plain.machine}: each machine would try for itself, and they might choose "
                "differently; say which graph and kernel it should be"
            )
        if not look or not others:
            return plain
        machine = self.known.host
        host = repr(
            (machine.cores, machine.memory_bytes, machine.gpus, machine.torch, platform.machine(), platform.node())
        )
        host += " with a compiler" if machine.programs.intersection(COMPILERS) else ""
        taken, figures = chosen(plain, others, warm=self.descriptions.warm, host=host)
        return taken.model_copy(update={"chosen": figures})

    def _certain(self, own: Mapping[str, Any], rest: dict[str, Any], values: dict[str, Any], *, look: bool) -> Spec:
        spec = self._resolved(own, values, self.known)
        facts = self.descriptions.before(rest, spec)
        if look and facts is None and (self.source_sha256 is not None or spec.precision in NEED_FACTS):
            try:
                facts = self.descriptions.at(self.task, rest, spec)
            except RunFailed as error:
                raise BadInput(error.why) from error
        if facts is None:
            return spec
        known = replace(
            self.known, linear=facts.linear, capability=facts.capability, tables=facts.num_tables > 0, sparse=facts.num_sparse > 0,
            **(_of_file(facts) if self.source_sha256 is not None else {}),
        )  # fmt: skip
        return self._resolved(own, values, known, facts.defaults)

    def _resolved(
        self,
        own: Mapping[str, Any],
        values: Mapping[str, Any],
        known: Known,
        own_defaults: Mapping[str, Any] | None = None,
    ) -> Spec:
        """`own_defaults`: the task's with these parameters, which may decide on them (the rate of its optimizer)."""
        defaults = {**self.defaults, **(own_defaults or {})}
        return resolve(self.task, own, params=values, defaults=defaults, known=known, source_sha256=self.source_sha256)


def prepare(task: str, asked: Mapping[str, Any], *, warm: Warm | None = None, keeps: bool = False) -> Prepared:
    """`asked` is used only for what a describe job needs: the task's parameters, data and time limit. `warm`: where
    describe jobs, and the ranks after them, may be forked from. `keeps`: what they find out is kept for the next command."""
    host = here()
    if task in BUILTIN:
        entry = BUILTIN[task]
        known = Known(
            host,
            DataShape("tensors"),
            tensor_plan=entry.tensor_plan,
            tables=entry.tables,
            own_optimizer=False,
            own_schedule=False,
        )
        return Prepared(task, entry.params, entry.defaults, known, descriptions=TaskDescriptions(warm))
    return _prepare_file(task, asked, host, TaskDescriptions(warm, kept_on=host if keeps else None))


def _prepare_file(task: str, asked: Mapping[str, Any], host: Host, descriptions: TaskDescriptions) -> Prepared:
    path, wanted = _task_path(task)
    own, rest = split(asked)
    wrong = check_values(own)
    if wrong:
        raise BadInput(wrong)
    given = settings.Settings.model_validate(own)
    if host.torch is None:
        raise BadInput("training needs torch, and it is not installed in this Python: pip install torch")
    name = f"{path}:{wanted}" if wanted else str(path)
    facts = descriptions.at(name, rest, given)
    known, defaults = known_of_file(facts, host)
    return Prepared(name, facts.params, defaults, known, facts.source_sha256, descriptions)


def known_of_file(facts: TaskFacts, host: Host) -> tuple[Known, dict[str, Any]]:
    """What rules know of a user's task, and its defaults: what it builds itself is used unless something else is asked for."""
    builds = {"optimizer": facts.has_optimizer, "schedule": facts.has_schedule}
    defaults = {**{setting: OWN for setting, has in builds.items() if has}, **facts.defaults}
    return Known(host, **_of_file(facts)), defaults


def _of_file(facts: TaskFacts) -> dict[str, Any]:
    """What rules know of a user's task with these parameters; of a built-in one it stands in a table."""
    return {
        "train": DataShape(facts.train.kind, facts.train.num, endless=facts.train.num is None),
        "knows_better": facts.knows_better, "tensor_plan": facts.has_tensor_plan,
        "own_optimizer": facts.has_optimizer, "own_schedule": facts.has_schedule, "own_step": facts.has_step,
        "sets_by_step": facts.sets_by_step,
        "verdict": None if facts.probe is None else Verdict.model_validate(facts.probe),
        "inputs": None if facts.inputs is None else Inputs.model_validate(facts.inputs),
    }  # fmt: skip


def _task_path(task: str) -> tuple[Path, str]:
    """File and class behind path/to/file.py[:Class]; a mistyped built-in name is answered with the nearest one."""
    file = task_file(task)
    if file is None:
        close = nearest(task, BUILTIN)
        hint = f"did you mean {close!r}?" if close else "it is neither a built-in task nor a Python file"
        raise BadInput(f"unknown task {task!r}; {hint} (built in: {', '.join(BUILTIN)}; your own: path/to/file.py)")
    path = Path(file[0])
    if not path.is_file():
        raise BadInput(f"task {str(path)!r}: there is no such file")
    return path.resolve(), file[1]
