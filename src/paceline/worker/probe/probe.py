"""The probe: a task's loss, scores and model on samples of its own data, whole and in parts, until it is known how they recombine.

It works on a model of its own and may leave it in any state, so it belongs into a process that ends: the describe job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.base.errors import RunFailed
from paceline.spec.verdict import LossKind, ModelKind, Verdict
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.probe.criteria import Criteria
from paceline.worker.probe.losses import SAID, Terms, ignores, not_as_said, term_kind, terms_of
from paceline.worker.probe.samples import MOST, Samples
from paceline.worker.probe.scores import score_kinds, uses_inputs
from paceline.worker.probe.steps import OwnSteps
from paceline.worker.probe.strangers import refuse_strangers
from paceline.worker.probe.subject import Places, Subject, copies, differ, put_back, rows_of
from paceline.worker.tasks.by_number import ByNumber
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.forms import LOSS
from paceline.worker.tasks.returned import loss_terms
from paceline.worker.tasks.task import ONE_VALUE, Task, no_loss, no_score, sentence, usual_loss, usual_score
from paceline.worker.tasks.tree import leaves_of
from paceline.worker.transform import precision, side_effects
from paceline.worker.world.seed import seed_everything

# fp64 shows a difference that fp32 hides in its rounding; fp32 is for models that insist on it.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}
_BUDGET_S = 4.0  # for all passes, as a pass over the fewest samples foretells it: much too long where a model is small
_SMALL_S = 0.02  # a pass that is that short is overhead
_PASSES = 16  # over all samples, forward and backward, about
_FEWEST = 6
_STEPS, _EPOCHS = 1000, 10  # of a run, for `on_step` and `on_epoch`
_HOST = torch.device("cpu")


def probe(task: Task, feed: Feed, model: torch.nn.Module | None = None, *, couples: bool, seed: int) -> Verdict:
    """`model`: where there is one already; it is left in any state. `couples`: the task says that its loss couples the
    samples of a batch."""
    first: Exception | None = None
    for dtype, tolerance in _TOLERANCES.items():
        seed_everything(seed)
        try:
            with _default(dtype):
                subject = model if model is not None and first is None else task.build_model()
                return _Probe(task, feed, subject.to(dtype), dtype, tolerance).verdict(couples=couples)
        except RunFailed:
            raise
        except Exception as error:
            first = first or error
    assert first is not None
    return Verdict(loss="coupled" if couples else "mean", score_kind="whole", unknown=sentence(first)[:200])


@contextlib.contextmanager
def _default(dtype: torch.dtype) -> Generator[None]:
    """What forward makes without saying a type is of this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Probe:
    """Three parts: what a model does with samples that are side by side, then the loss, then the scores."""

    def __init__(self, task: Task, feed: Feed, model: torch.nn.Module, dtype: torch.dtype, tolerance: float) -> None:
        self.task, self.feed, self.dtype, self.tolerance = task, feed, dtype, tolerance
        samples = Samples(feed, task, most=MOST, cast=lambda batch: precision.cast(batch, to=dtype, device=_HOST))
        self.subject = Subject(task, model, samples)
        self.criteria = Criteria()
        by_number = ByNumber(task, model, _STEPS, _EPOCHS)
        by_number.before_epoch(0)
        by_number.before_step(0)
        self.own_steps = OwnSteps(task, self.subject) if task.step is not None else None
        num = self._affordable(samples.num)
        self.whole: Places = range(num)
        # uneven: a mean of means over equal parts would be right by chance
        self.parts: Sequence[Places] = (range(max(1, num // 3)), range(max(1, num // 3), num))

    def _affordable(self, num: int) -> int:
        """How many samples the passes have time for. All of them where a pass takes milliseconds, whatever else the
        machine does: a verdict should stand on the same samples each time."""
        few = min(_FEWEST, num)
        self._loss(range(few))  # libraries are loaded
        watch = Stopwatch("probe")
        self._loss(range(few))
        pass_s = watch.elapsed()  # most of it is there for one sample too, where a model is small
        sizes = [size for size in (num, num // 2, num // 4) if size > few]
        return next((size for size in sizes if size / few * pass_s * _PASSES < _BUDGET_S or pass_s < _SMALL_S), few)

    def _loss(self, places: Places) -> Terms:
        if self.own_steps is not None:
            with self.criteria:
                return self.own_steps.terms(places)
        return terms_of(self.subject, places, self.criteria)

    def verdict(self, *, couples: bool) -> Verdict:
        subject, task = self.subject, self.task
        if len(self.whole) < 2:  # of which there are no parts
            return Verdict(loss="coupled" if couples else "mean", score_kind="whole", samples=len(self.whole))
        if self.own_steps is None:
            refuse_strangers(subject, self.whole)
        changes = self._changes()
        buffers = self._model(training=True)
        alone = self._model(training=False)
        rows = self.own_steps is not None or bool(
            rows_of(subject.outputs(self.whole, training=True), 0, len(self.whole), len(self.whole))
        )
        pairs = buffers == "batchnorm" and self._needs_two()
        terms = self._terms(checks=buffers != "together") if task.loss is not usual_loss else {}
        kinds = {"coupled"} if couples else {*terms.values()} or {"ratio"}
        if self.own_steps is not None:  # what is reduced is gradients, all in one way
            kinds, terms = kinds if len(kinds) == 1 else {"coupled"}, {}
        scores = {}
        if task.score not in (usual_score, no_score) and task.score_of is None:
            scores = score_kinds(subject, self.whole, self.parts, self.tolerance)
        whole = "whole" in scores.values()
        return Verdict(
            loss=_together(kinds), terms=terms if len(terms) > 1 else {}, scores=scores, buffers=buffers,
            uses_inputs=whole and uses_inputs(subject, self.whole), together_in_evaluation=alone == "together",
            rows=rows, needs_two=pairs, **changes, draws=subject.drew, samples=len(self.whole),
            precision=str(self.dtype).removeprefix("torch.float"),
        )  # fmt: skip

    def _model(self, *, training: bool) -> ModelKind:
        """Whether a sample's outputs depend on the samples beside it. In a step of the task's own nobody can look."""
        normalises = any(isinstance(module, _BatchNorm) for module in self.subject.model.modules())
        if self.own_steps is not None and (training or not self.task.evaluates):
            return "batchnorm" if training and normalises else "apart"
        whole = self.subject.outputs(self.whole, training=training)
        start = 0
        for places in self.parts:
            cut = rows_of(whole, start, start + len(places), len(self.whole))
            own = rows_of(self.subject.outputs(places, training=training), 0, len(places), len(places))
            start += len(places)
            if cut is not None and own is not None and differ(cut, own, self.tolerance):
                return "together"
        return "batchnorm" if training and normalises else "apart"

    def _needs_two(self) -> bool:
        """Whether BatchNorm finds a single value in each channel of a single sample, and has nothing to normalise."""
        try:
            self.subject.outputs(self.whole[:1], training=True, hold=False)
        except ValueError as error:
            return ONE_VALUE in str(error)
        return False

    def _changes(self) -> dict[str, Any]:
        """What is different when the same batch is computed again: numbers in Python, buffers, or the loss itself."""
        self.subject.puts_back = False
        model = self.subject.model
        python, buffers = side_effects.numbers_of(model, self.task), copies(model)
        first = self._loss(self.whole)
        later = side_effects.numbers_of(model, self.task)
        numbers = [name for name in {**python, **later} if python.get(name) != later.get(name)]
        moved = [name for name, buffer in model.named_buffers() if not _same(buffers.get(name), buffer)]
        again = self._loss(self.whole)
        computes = any(differ(first[name].value, again[name].value, self.tolerance) for name in first)
        unseen = ["what the loss computes"] if computes and not numbers and not moved else []
        by_calls = bool(moved) and not numbers and self._by_calls()
        self.subject.puts_back = True
        return {
            **self._in_evaluation(),
            "changes": (*numbers, *moved, *unseen),
            "changes_by": "calls" if by_calls else "data",
            "changes_python": bool(numbers or unseen),
        }

    def _in_evaluation(self) -> dict[str, bool]:
        """What an evaluation moves. Buffers that it moves are what the model is made for: each batch sees them as they are."""
        if not self.task.evaluates:
            return {}
        model, task, found = self.subject.model, self.task, list[list[torch.Tensor]]()
        counts = False

        def look(outputs: Any, batch: Any) -> list[torch.Tensor]:
            nonlocal counts
            terms = {} if task.loss is no_loss else loss_terms(task.loss(outputs, batch), Verdict(), name=task.name)
            counts |= side_effects.numbers_of(model, task) != before
            leaves = [*leaves_of(outputs), *(form.value for form in terms.values())]
            return [leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor)]

        for _ in range(2):
            before = side_effects.numbers_of(model, task)
            with torch.no_grad():
                found.append(self.subject.compute(self.whole, look, training=False))
        return {"counts_in_evaluation": counts, "moves_in_evaluation": differ(found[0], found[1], self.tolerance)}

    def _by_calls(self) -> bool:
        """Whether buffers move alike whatever the samples are, and only in training: a power iteration, say."""
        model, ends = self.subject.model, list[dict[str, torch.Tensor]]()
        before = copies(model)
        for places in self.parts:
            put_back(model, before)
            self._loss(places)
            ends.append(copies(model))
        if self.task.evaluates:
            self.subject.outputs(self.whole, training=False)
        kept = copies(model)
        return all(_same(ends[0][name], ends[1][name]) and _same(kept[name], ends[1][name]) for name in before)

    def _terms(self, *, checks: bool) -> dict[str, LossKind]:
        """`checks`: of a model that mixes samples, which is never cut, what the task says of its loss is believed."""
        seen: list[tuple[Terms, list[Terms]]] = []
        for amount in (0.0, 0.5):
            self.subject.disturb(amount)
            seen.append((self._loss(self.whole), [self._loss(places) for places in self.parts]))
            if any(part.keys() != seen[-1][0].keys() for part in seen[-1][1]):  # a step that decides by its samples
                return {LOSS: "coupled"}
        nums = [len(places) for places in self.parts]
        # means over samples that are weighed or left out are no means over samples, whatever these samples show
        uneven = self.criteria.weighs or ignores(self.criteria, getattr(self.feed, "tensors", ()))
        said = {} if checks else {name: term.said for name, term in seen[0][0].items() if term.said in SAID}
        return {name: said.get(name) or self._kind(name, seen, nums, uneven=uneven) for name in seen[0][0]}  # pyright: ignore[reportReturnType]

    def _kind(self, name: str, seen: Sequence[tuple[Terms, list[Terms]]], nums: list[int], *, uneven: bool) -> LossKind:
        terms = [(whole[name], [part[name] for part in parts]) for whole, parts in seen]
        found = term_kind(name, terms, nums, self.tolerance)
        if not uneven or found != "mean":
            return found
        if terms[0][0].said is not None:
            raise RunFailed(not_as_said(name, "mean"), kind="task")
        return "coupled"


def _together(kinds: set[str]) -> LossKind:
    """Of all terms: a count of its own beside another divisor cannot be added up."""
    if "coupled" in kinds or ("ratio" in kinds and len(kinds) > 1):
        return "coupled"
    (*_, word) = sorted(kinds, key=("total", "mean", "ratio").index)
    return word  # pyright: ignore[reportReturnType]


def _same(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    return one is not None and one.shape == other.shape and torch.equal(one, other)
