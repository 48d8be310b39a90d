"""A run that stops before its planned length, and the best weights beside the last: what is left is what was scored."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from made_step import WORLD
from paceline.base.errors import RunFailed
from paceline.records.events import Epoch, Event, Mark
from paceline.records.layout import RunDir
from paceline.worker import evaluations
from paceline.worker.assemble import Parts
from paceline.worker.ends import Ends
from paceline.worker.evaluate import evaluate
from paceline.worker.loop import train
from paceline.worker.measure.tally import Tally
from paceline.worker.progress import Progress
from paceline.worker.resilience.kept import KeptWeights
from paceline.worker.resilience.weights import fingerprint, restore, save
from paceline.worker.step.state import TrainState
from round_trip import BATCH, NUM, assembled, differences, network, spec_of, task

STEPS = 6  # of an epoch: 44 samples in batches of 8
LONG: dict[str, Any] = {"optimizer": "adam", "epochs": 4}


def run_through(**asked: Any) -> tuple[Parts, list[Event]]:
    parts = assembled(spec_of(**{**LONG, **asked}), WORLD, task())
    events: list[Event] = []
    observe: Any = SimpleNamespace(write=events.append)
    train(parts, Progress(parts, observe))
    return parts, events


def passes(events: list[Event], split: str) -> list[Epoch]:
    return [event for event in events if isinstance(event, Epoch) and event.split == split]


def scores(events: list[Event]) -> dict[int, float]:
    """iteration -> accuracy, of every evaluation."""
    return {event.iteration: event.total["accuracy"] or 0.0 for event in passes(events, "test")}


def plan(*values: float, better: str = "higher", named: str = "accuracy", **asked: Any) -> tuple[Ends, list[int]]:
    """The ends of a run with these scores, one a step, and after which of them it was to stop."""
    own = task(better=better)
    spec = spec_of(**asked)
    state = TrainState(model := network(), torch.optim.SGD(model.parameters()), WORLD.device)
    ends, stops = Ends(spec, own, WORLD, state), list[int]()
    for step, value in enumerate(values, start=1):
        state.position.iteration = step
        tally = Tally()
        tally.add({"loss": (1.0, 1), named: (value, 1)}, 1)
        ends.judge(tally, 0, last=False)
        if ends.stopped is not None:
            stops.append(step)
            break
    return ends, stops


@pytest.mark.parametrize(
    ("values", "better", "asked", "stops"),
    [
        ([0.1, 0.5, 0.49, 0.5, 0.6], "higher", {"stop_at": "plateau:2"}, [4]),  # equal is not better
        ([0.1, 0.5, 0.49, 0.51, 0.5], "higher", {"stop_at": "plateau:2"}, []),
        ([3.0, 2.0, 2.5, 1.0, 1.0, 0.9], "lower", {"stop_at": "plateau:1"}, [3]),
        ([0.1, 0.5, 0.8, 0.9], "higher", {"stop_at": "target", "target": 0.8}, [3]),
        ([3.0, 2.0, 0.8], "lower", {"stop_at": "target", "target": 2.0}, [2]),
        ([0.1, 0.9, 0.9], "higher", {"target": 0.8}, []),  # it is written down, and does not end the run
    ],
)
def test_when_a_run_stops(values: list[float], better: str, asked: dict[str, Any], stops: list[int]) -> None:
    ends, found = plan(*values, better=better, **asked)
    assert found == stops
    by = str(asked.get("stop_at")).partition(":")[0]
    assert ends.stopped == ({"by": by, "iteration": stops[0], "epoch": 0} if stops else None)


def test_the_loss_judges_where_there_is_no_score() -> None:
    ends, _ = plan(1.0, 0.4, 0.6, named="loss", stop_at="plateau:5", better="higher")
    assert ends.best == {"iteration": 2, "epoch": 0, "score": "loss", "value": 0.4}, "a lower loss is better"
    with pytest.raises(RunFailed, match="has no score on its test set"):
        plan(1.0, named="loss", stop_at="target", target=0.5)


def test_the_end_that_was_planned_is_no_stop() -> None:
    parts, events = run_through(steps=4, epochs=None, stop_at="target", target=1e-9)
    assert scores(events)[4] >= 1e-9
    assert parts.ends.stopped is None


def test_a_run_stops_in_the_middle_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """At step 10, the fourth of its epoch: marks, training figures and evaluations are those of the steps that were made."""
    made: list[int] = []
    monkeypatch.setattr(evaluations, "evaluate", lambda *given: made.append(1) or evaluate(*given))
    asked = {"evaluate_every": 2}
    whole = scores(run_through(**asked)[1])
    target = whole[10]
    assert all(whole[step] < target for step in (2, 4, 6, 8)), "the test needs a score that step 10 reaches first"
    made.clear()
    parts, events = run_through(**asked, stop_at="target", target=target)
    assert len(made) == 5, "the one that ends the run is not made again"
    assert parts.ends.stopped == {"by": "target", "iteration": 10, "epoch": 1}
    assert [(event.iteration, event.middle) for event in passes(events, "test")] == [
        (2, True), (4, True), (6, False), (8, True), (10, False),
    ]  # fmt: skip
    assert scores(events) == {step: whole[step] for step in (2, 4, 6, 8, 10)}
    assert [(event.iteration, event.num_total, event.of) for event in passes(events, "train")] == [
        (6, NUM, NUM), (10, 4 * BATCH, NUM),
    ]  # fmt: skip
    assert sum(event.num_global for event in events if isinstance(event, Mark)) == NUM + 4 * BATCH


def test_what_it_leaves_is_what_was_scored() -> None:
    """The same weights and statistics as a run of so many steps; and evaluated again they score the same."""
    asked = {"evaluate_every": 2}
    target = scores(run_through(**asked)[1])[10]
    parts, events = run_through(**asked, stop_at="target", target=target)
    plain, _ = run_through(steps=10, epochs=None)
    assert fingerprint(parts.model) == fingerprint(plain.model)
    last = passes(events, "test")[-1]
    assert evaluate(parts).total.means() == last.total


def test_a_run_that_is_never_stopped_is_the_same_run() -> None:
    """Rates too: a stop is not known before it comes, so they are those of the planned length."""
    plain, _ = run_through(schedule="cosine")
    watched, _ = run_through(schedule="cosine", stop_at="plateau:99", keep="best")
    assert watched.ends.stopped is None
    assert differences(plain.state.copy_out(), watched.state.copy_out()) == []


def test_the_best_weights_are_those_that_scored_best(tmp_path: Path) -> None:
    """In the middle of an epoch, where buffers are put back afterwards: with them the recorded score is had again, to the bit."""
    asked: dict[str, Any] = {"evaluate_every": 4, "lr": 0.2}
    parts, events = run_through(**asked, keep="best")
    found = scores(events)
    best = parts.ends.best
    assert best is not None and best["value"] == max(found.values()) == found[best["iteration"]]
    assert best["iteration"] == min(step for step, value in found.items() if value == max(found.values())) < 24
    run = RunDir(tmp_path)
    assert parts.ends.best_weights(run) == {**best, "weights": "best.safetensors"}
    last = fingerprint(parts.model)
    assert parts.ends.put_best_back()
    save(parts.model, run.best)
    assert fingerprint(parts.model) != last
    fresh = assembled(spec_of(**LONG), WORLD, task())
    restore(fresh.model, run.best)
    means = evaluate(fresh).total.means()
    assert means == next(e.total for e in passes(events, "test") if e.iteration == best["iteration"])
    short, _ = run_through(steps=best["iteration"], epochs=None, lr=0.2)
    assert fingerprint(fresh.model) == fingerprint(short.model)


def test_nothing_more_is_kept_where_the_last_is_the_best(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copies: list[int] = []
    monkeypatch.setattr(KeptWeights, "take", lambda self: copies.append(1))
    parts, _ = run_through(epochs=1, keep="best")
    written = parts.ends.best_weights(RunDir(tmp_path))
    assert written is not None and (written["iteration"], written["weights"]) == (STEPS, "final.safetensors")
    assert not parts.ends.put_best_back() and not copies
    run_through(evaluate_every=1, epochs=1)
    assert not copies, "keep=last copies nothing"


def test_kept_weights_come_back_with_buffers_and_tied_weights() -> None:
    model = network()
    model.tied = model[0]  # pyright: ignore[reportIndexIssue, reportArgumentType]
    first, kept = fingerprint(model), KeptWeights(model)
    kept.take()
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.add_(1)
    second = fingerprint(model)
    kept.put_back()
    assert fingerprint(model) == first != second
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.add_(1)
    kept.take()
    model[0].weight.data.zero_()  # pyright: ignore
    kept.put_back()
    assert fingerprint(model) == second, "a second copy is the new one"
