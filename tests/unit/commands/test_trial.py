"""What a trial chooses, from figures that are known: the whole run's time decides, compiling included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paceline.base.errors import BadInput
from paceline.commands.prepare import prepare
from paceline.commands.trial import MOST_STEPS, _best, _tried, chosen, ways  # pyright: ignore[reportPrivateUsage]
from paceline.records.record import Record, parse
from paceline.spec.run import Spec

EAGER = Spec(task="features", batch=100, epochs=10, device="cpu", threads=1, weight_decay=0.0, graph_of="model")
STEP = EAGER.model_copy(update={"graph": "compile", "graph_of": "step"})
FUSED = STEP.model_copy(update={"kernel": "fused"})


class Runs:
    """Short runs with known answers: seconds a step, seconds to compile, or the reason why it fails."""

    def __init__(self, figures: dict[tuple[str, str], tuple[float, float] | str]) -> None:
        self.figures, self.asked = figures, list[Spec]()

    def __call__(self, spec: Spec, _: str) -> Record:
        self.asked.append(spec)
        found = self.figures[spec.graph, spec.kernel]
        if isinstance(found, str):
            return parse({"outcome": "failed", "why": found})
        step_s, compile_s = found
        graph = None if spec.graph == "eager" else {"compile_s": compile_s}
        return parse({"outcome": "completed", "throughput": 100 / step_s, "graph": graph, "train": {"of": 60_000}})


def test_a_long_run_is_compiled_and_a_short_one_is_not() -> None:
    """1 ms a step against 0.4 ms and 8 s to compile: worth it after 13,334 steps."""
    runs = Runs({("eager", "torch"): (0.001, 0.0), ("compile", "torch"): (0.0004, 8.0)})
    found = _tried(EAGER, [STEP], runs)
    assert [spec.graph for spec in runs.asked] == ["eager", "eager", "compile"]
    assert {spec.steps for spec in runs.asked[1:]} == {1000}, "a second of steps each"
    for steps, graph in ((13_400, "compile"), (13_300, "eager")):
        taken, why = _best(EAGER.model_copy(update={"steps": steps}), [STEP.model_copy(update={"steps": steps})], found)
        assert (taken.graph, taken.steps) == (graph, steps)
        assert why["steps_of_the_run"] == steps and [row["graph"] for row in why["ways"]] == ["eager", "compile"]
        assert why["ways"][1]["run_s"] == pytest.approx(8.0 + steps * 0.0004)


def test_what_is_over_in_seconds_is_not_even_tried() -> None:
    """6,000 steps of 0.5 ms: nothing could be made in less."""
    runs = Runs({("eager", "torch"): (0.0005, 0.0)})
    taken, why = _best(EAGER, [STEP], _tried(EAGER, [STEP], runs))
    assert taken is EAGER and len(why["ways"]) == 1 and why["steps_tried"] == 2000


def test_a_short_run_says_nothing_about_a_long_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """What was not tried for it, and what failed for a passing reason, is tried again."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    runs = Runs(
        {("eager", "torch"): (0.0005, 0.0), ("eager", "fused"): (0.0004, 0.0), ("compile", "torch"): (0.0001, 8.0)}
    )
    monkeypatch.setattr("paceline.commands.trial.run_to_record", lambda rendered, warm: runs(rendered.spec, ""))
    kernel = EAGER.model_copy(update={"kernel": "fused"})
    short, _ = chosen(EAGER, [kernel, STEP], warm=None, host="here")
    assert short.kernel == "fused" and short.graph == "eager", "another kernel needs nothing to be compiled anew"
    long, _ = chosen(EAGER.model_copy(update={"epochs": 1000}), [kernel, STEP], warm=None, host="here")
    assert long.graph == "compile"


def test_a_way_that_fails_is_told_and_left_out() -> None:
    runs = Runs(
        {("eager", "torch"): (0.01, 0.0), ("compile", "torch"): "no C++ compiler", ("compile", "fused"): (0.001, 9.0)}
    )
    taken, why = _best(EAGER, [STEP, FUSED], _tried(EAGER, [STEP, FUSED], runs))
    assert taken is FUSED and why["ways"][1]["why"] == "no C++ compiler"


def test_what_depends_on_the_length_is_shortened_with_it() -> None:
    runs = Runs({("eager", "torch"): (0.01, 0.0)})
    _tried(EAGER.model_copy(update={"warmup": 500, "sync_every": 100}), [], runs)
    assert {(spec.warmup, spec.sync_every) for spec in runs.asked} == {(0, 10)}


def test_a_tiny_step_is_looked_at_long_enough_and_no_longer() -> None:
    runs = Runs({("eager", "torch"): (1e-6, 0.0)})
    assert _tried(EAGER, [], runs)["steps"] == MOST_STEPS


def test_a_trial_that_fails_says_what_failed() -> None:
    with pytest.raises(BadInput, match="the trial of 30 steps failed: the loss became nan"):
        _tried(EAGER, [STEP], Runs({("eager", "torch"): "the loss became nan"}))


def test_the_ways_there_are() -> None:
    assert [tuple(way.values()) for way in ways("auto", "auto", "cpu")] == [
        ("eager", "model", "torch"), ("eager", "model", "fused"), ("compile", "step", "torch"), ("compile", "step", "fused"),
    ]  # fmt: skip
    assert [tuple(way.values()) for way in ways("auto", "torch", "cuda")][2:] == [("captured", "step", "torch")]
    assert [tuple(way.values()) for way in ways("export", "auto", "cpu")] == [
        ("export", "auto", "torch"), ("export", "auto", "fused"),
    ]  # fmt: skip


def test_a_figure_that_is_kept_is_used_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    runs = Runs({("eager", "torch"): (0.001, 0.0), ("compile", "torch"): (0.0004, 8.0)})
    monkeypatch.setattr("paceline.commands.trial.run_to_record", lambda rendered, warm: runs(rendered.spec, ""))
    long = EAGER.model_copy(update={"epochs": 100})
    first, _ = chosen(long, [STEP], warm=None, host="here")
    again, why = chosen(EAGER.model_copy(update={"seed": 7}), [STEP], warm=None, host="here")
    assert len(runs.asked) == 3, "the second asks for the same but for its length and seed"
    assert (first.graph, again.graph, why["steps_of_the_run"]) == ("compile", "eager", 6_000)
    chosen(long, [STEP], warm=None, host="elsewhere")
    assert len(runs.asked) == 6, "another machine has other figures"


def test_what_a_trial_cannot_decide_is_said() -> None:
    prepared = prepare("features", {})
    with pytest.raises(BadInput, match="graph_of=step with graph=auto: the trial decides both"):
        prepared.spec({"graph": "auto", "graph_of": "step"})
    with pytest.raises(BadInput, match="each machine would try for itself"):
        prepared.spec(
            {"graph": "auto", "machine": 1, "on": "2x1", "head": "h", "launcher": "torchrun", "device": "cpu"}
        )
    step = replace(prepared, defaults={**prepared.defaults, "graph": "compile", "graph_of": "step"})
    spec = step.spec({"kernel": "auto", "device": "cpu"}, look=False)
    assert (spec.graph, spec.graph_of) == ("compile", "step"), "a task's own default"
    spec = prepared.spec({"graph": "auto", "device": "cpu"}, look=False)
    assert (spec.graph, spec.kernel, spec.chosen) == ("eager", "torch", None)
