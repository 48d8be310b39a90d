"""The probe: a task's loss, scores and model on samples of its own data, whole and in parts, until it is known how they recombine.

It works on a model of its own and may leave it in any state, so it belongs into a process that ends: the describe job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.base.errors import RunFailed
from paceline.spec.verdict import LossKind, ModelKind, Verdict
from paceline.worker.probe.by_number import moves_data, refuse_drawn
from paceline.worker.probe.changes import (
    in_evaluation,
    in_training,
    moved_numbers,
    weight_numbers,
)
from paceline.worker.probe.criteria import Criteria
from paceline.worker.probe.effort import Effort, affordable
from paceline.worker.probe.formats import default_format, in_single_precision, into
from paceline.worker.probe.gradients import bends_gradients, has_hooks
from paceline.worker.probe.losses import (
    SAID,
    Look,
    Terms,
    alike,
    ignores,
    look,
    not_as_said,
    refuse_sums_among_terms,
    refuse_without_gradient,
    term_kind,
)
from paceline.worker.probe.outputs import has_number
from paceline.worker.probe.recombine import ENOUGH, uneven
from paceline.worker.probe.samples import MOST, Samples
from paceline.worker.probe.scores import score_kinds, uses_inputs
from paceline.worker.probe.steps import OwnSteps
from paceline.worker.probe.strangers import refuse_strangers
from paceline.worker.probe.subject import Places, Subject, differ, overlap, rows_of
from paceline.worker.tasks.by_number import ByNumber
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.forms import LOSS
from paceline.worker.tasks.named_batch import loss_within
from paceline.worker.tasks.task import ONE_VALUE, Task, no_score, sentence
from paceline.worker.tasks.usual import doubt, several_inputs, usual_forward, usual_loss, usual_score
from paceline.worker.world.seed import seed_everything

# fp64 shows a difference that fp32 hides in its rounding; fp32 is for models that insist on it.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}
_AMOUNT = 0.5  # by which weights are disturbed
_FEW = 3  # samples, for what one pass shows
_STEPS, _EPOCHS = 1000, 10  # of a run, for `on_step` and `on_epoch`


def probe(task: Task, feed: Feed, model: torch.nn.Module | None = None, *, couples: bool, seed: int) -> Verdict:
    """`model`: where there is one already; it is left in any state. `couples`: the task says that its loss couples the
    samples of a batch."""
    first: Exception | None = None
    numbers = {} if model is None else weight_numbers(model)
    samples = Samples(feed, task, most=MOST)
    single = None if task.step is not None or model is None else in_single_precision(task, samples, model)
    for dtype, tolerance in _TOLERANCES.items():
        if single is not None and dtype is torch.float64:
            continue
        seed_everything(seed)
        try:
            with default_format(dtype):
                if model is None or first is not None:
                    model = task.build_model()
                    numbers = weight_numbers(model)
                probed = _Probe(task, feed, samples, model.to(dtype), dtype, tolerance)
                effort = single or probed.effort()
                probed.moved = moved_numbers(numbers, model)
                return probed.verdict(effort, couples=couples)
        except RunFailed:
            raise
        except Exception as error:
            first = first or error
    assert first is not None
    if isinstance(first, TypeError) and task.forward is usual_forward and (parts := several_inputs(samples.batch([0]))):
        raise RunFailed(
            f"the batch has {parts + 1} parts, and without a forward of the task the model is given all but the last: {sentence(first)}; "
            "define forward(model, batch)",
            kind="task",
        ) from first
    return Verdict(loss="coupled" if couples else "mean", score_kind="whole", unknown=sentence(first)[:200])


class _Probe:
    """Three parts: what a model does with samples that are side by side, then the loss, then the scores."""

    def __init__(
        self, task: Task, feed: Feed, samples: Samples, model: torch.nn.Module, dtype: torch.dtype, tolerance: float
    ) -> None:
        self.task, self.feed, self.dtype, self.tolerance = task, feed, dtype, tolerance
        self.subject = Subject(task, model, samples.cast(into(dtype)))
        self.criteria = Criteria()
        by_number = ByNumber(task, model, _STEPS, _EPOCHS)
        refuse_drawn(task, by_number)
        self.moves_data = moves_data(task, feed, by_number, steps=_STEPS, epochs=_EPOCHS)
        by_number.before_epoch(0)
        by_number.before_step(0)
        self.own_steps = OwnSteps(task, self.subject) if task.step is not None else None
        self.whole: Places = range(0)
        self.parts: Sequence[Places] = ()
        self.moved: list[str] = []  # weights that forward has changed before anything was looked at
        self.lean: int | None = None  # of how many samples gradients are looked at at the outputs
        self._evaluated: dict[Places, Any] = {}  # outputs in evaluation, where nothing moves there
        self._looks: dict[Places, Look] | None = None  # what was computed already, of weights that stay

    def effort(self) -> Effort:
        if self.own_steps is not None:  # which computes what it likes
            return affordable(self.subject.samples.num, self._loss)
        return affordable(self.subject.samples.num, lambda places: self.subject.outputs(places, training=True))

    def _takes(self, effort: Effort) -> None:
        num = effort.num
        self.whole, self.parts = range(num), uneven(num)
        if effort.lean:
            self.lean = num
            self.subject.disturb(_AMOUNT)

    def _loss(self, places: Places) -> Look:
        if self.own_steps is not None:
            with self.criteria:
                return Look(self.own_steps.terms(places), None, [])
        if self._looks is None:
            return look(self.subject, places, self.criteria, lean=self.lean)
        if places not in self._looks:
            self._looks[places] = look(self.subject, places, self.criteria, lean=self.lean)
        return self._looks[places]

    def verdict(self, effort: Effort, *, couples: bool) -> Verdict:
        subject, task = self.subject, self.task
        self._takes(effort)
        if len(self.whole) < 2:  # of which there are no parts
            return Verdict(loss="coupled" if couples else "mean", score_kind="whole", samples=len(self.whole))
        changes = self._changes()
        num = len(self.whole)
        buffers, outputs = self._model(training=True)
        alone, evaluated = self._model(training=False)
        rows = self.own_steps is not None or (bool(rows_of(outputs[0], 0, num, num)) and not has_number(outputs[0]))
        pairs = buffers == "batchnorm" and self._needs_two()
        usual = task.loss is usual_loss and loss_within(outputs[0]) is None
        terms = {} if usual else self._terms(checks=buffers != "together")
        bends = self.own_steps is None and self._bends_gradients()
        kinds = {"coupled"} if couples else {*terms.values()} or {"ratio"}
        if self.own_steps is not None:  # what is reduced is gradients, all in one way
            kinds, terms = kinds if len(kinds) == 1 else {"coupled"}, {}
        scores = {}
        if task.score not in (usual_score, no_score) and task.score_of is None:
            known = evaluated if self.lean is not None and len(evaluated) == 1 + len(self.parts) else None
            scores = score_kinds(subject, self.whole, self.parts, self.tolerance, known)
        whole, loss = "whole" in scores.values(), _together(kinds)
        guessed = doubt(outputs[0], subject.samples.batch(self.whole)) if usual else None
        return Verdict(
            loss=loss, terms=terms if len(terms) > 1 else {}, scores=scores, buffers=buffers,
            uses_inputs=whole and uses_inputs(subject, self.whole), together_in_evaluation=alone == "together",
            rows=rows, ragged=loss == "coupled" and subject.samples.ragged, needs_two=pairs, moves_data=self.moves_data,
            bends_gradients=bends, hooks=has_hooks(subject.model.parameters()), **changes,
            draws=subject.drew, data_draws=subject.samples.drew, samples=len(self.whole),
            precision=str(self.dtype).removeprefix("torch.float"), notes=() if guessed is None else (("guessed", guessed),),
        )  # fmt: skip

    def _model(self, *, training: bool) -> tuple[ModelKind, list[Any]]:
        """Whether a sample's outputs depend on the samples beside it; and the outputs of all, and of the parts as far as was looked. In a
        step of the task's own nobody can look."""
        normalises = any(isinstance(module, _BatchNorm) for module in self.subject.model.modules())
        usual: ModelKind = "batchnorm" if training and normalises else "apart"
        if self.own_steps is not None and (training or not self.task.evaluates):
            return usual, []
        found = [self._outputs(self.whole, training=training)]
        for places in self.parts:
            cut = rows_of(found[0], places[0], places[-1] + 1, len(self.whole))
            found.append(self._outputs(places, training=training))
            own = rows_of(found[-1], 0, len(places), len(places))
            if cut is not None and own is not None and differ(*overlap(cut, own), self.tolerance):
                again = rows_of(
                    self._outputs(self.whole, training=training), places[0], places[-1] + 1, len(self.whole)
                )
                # a model that moves by itself tells nothing of neighbours
                return ("together" if again is not None and not differ(cut, again, self.tolerance) else usual), found
        return usual, found

    def _outputs(self, places: Places, *, training: bool) -> Any:
        if training and self._looks is not None:
            return self._loss(places).outputs
        if not training and places in self._evaluated:
            return self._evaluated[places]
        return self.subject.outputs(places, training=training)

    def _needs_two(self) -> bool:
        """Whether BatchNorm finds a single value in each channel of a single sample, and has nothing to normalise."""
        one = self.whole[:1]
        try:
            if self.own_steps is not None:
                self.own_steps.terms(one, hold=False)
            else:
                self.subject.outputs(one, training=True, hold=False)
        except ValueError as error:
            return ONE_VALUE in str(error)
        return False

    def _changes(self) -> dict[str, Any]:
        found, looks = in_training(self.subject, self._loss, self.whole, self.parts, self.tolerance, moved=self.moved)
        if self.own_steps is None:
            refuse_strangers(self.subject, looks.first.reached, looks.again.reached)
        if self.lean is not None:
            self._looks = {} if found["changes"] else {self.whole: looks.again, **looks.parts}
        evaluation, self._evaluated = in_evaluation(self.subject, self.whole, self.parts, self.tolerance)
        return {**found, **evaluation}

    def _terms(self, *, checks: bool) -> dict[str, LossKind]:
        """`checks`: of a model that mixes samples, which is never cut, what the task says of its loss is believed."""
        seen: list[tuple[Terms, list[Terms]]] = []
        for amount in (0.0, _AMOUNT) if self.lean is None else (0.0,):
            self.subject.disturb(amount)
            seen.append((self._loss(self.whole).terms, [self._loss(places).terms for places in self.parts]))
            if any(part.keys() != seen[-1][0].keys() for part in seen[-1][1]):  # a step that decides by its samples
                return {LOSS: "coupled"}
        if self.lean is not None and not all(alike(whole, parts) for whole, parts in seen):
            self.lean = self._looks = (
                None  # a part's outputs have another size (padding): then it is the parameters that tell
            )
            return self._terms(checks=checks)
        if self.own_steps is None:
            refuse_without_gradient(*seen[-1], self.tolerance)
            refuse_sums_among_terms([whole for whole, _ in seen], self.tolerance)
        nums = [len(places) for places in self.parts]
        # means over samples that are weighed or left out are no means over samples, whatever these samples show
        uneven = self.criteria.weighs or ignores(self.criteria, getattr(self.feed, "tensors", ()))
        said = {} if checks else {name: term.said for name, term in seen[0][0].items() if term.said in SAID}
        kinds: dict[str, Any] = {
            name: said.get(name) or self._kind(name, seen, nums, uneven=uneven) for name in seen[0][0]
        }
        return self._of_few(kinds, seen[-1][0])

    def _bends_gradients(self) -> bool:
        """Where passes take long, only of a model that has hooks."""
        few = self.whole[:_FEW]
        held = [*self.subject.model.modules(), *self.subject.model.parameters()]
        return (self.lean is None or has_hooks(held)) and bends_gradients(self.subject, few, self.tolerance)

    def _of_few(self, kinds: dict[str, Any], whole: Terms) -> dict[str, LossKind]:
        """The same with a very small part: a loss may treat few samples in another way. One that cannot be computed of so few says so
        in the run."""
        few, num = self.whole[:_FEW], len(self.whole)
        if self.lean is not None or self.own_steps is not None or num < ENOUGH:
            return kinds
        try:
            parts = [self._loss(places).terms for places in (few, self.whole[_FEW:])]
        except RunFailed:
            raise
        except Exception:
            return kinds
        bare = [name for name, kind in kinds.items() if kind in ("mean", "total") and whole[name].said is None]
        seen, nums = [(whole, parts)], [_FEW, num - _FEW]
        others = [name for name in bare if self._kind(name, seen, nums, uneven=False) != kinds[name]]
        return {name: "coupled" if name in others else kind for name, kind in kinds.items()}

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
