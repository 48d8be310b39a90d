"""What a study of profiles compares: shares and modules, and no timing of a run."""

from __future__ import annotations

from typing import Any

from paceline.analysis.metrics import table
from paceline.records.record import Record, parse

NO_RUN: dict[str, Any] = dict.fromkeys(("train", "test", "score", "time", "throughput", "memory"))


def profiled(*types: str) -> Record:
    modules = {name: {"forward_s": 0.5, "calls": 2} for name in types}
    seen = {"clean": {"data_share": 0.25}, "types": modules, "by_name": {"net.act": {"forward_s": 0.1}}}
    return parse({**NO_RUN, "spec": {"profile": "inference"}, "profile": seen, "took_s": 9.0})


def test_every_type_of_any_run_and_the_share() -> None:
    found = table([profiled("Linear", "ReLU"), profiled("Linear", "GELU")])
    assert [(metric.name, metric.title, metric.unit) for metric in found] == [
        ("profile.clean.data_share", "batch assembly", "fraction"),
        ("profile.types.Linear.forward_s", "Linear, forward", "s"),
        ("profile.types.ReLU.forward_s", "ReLU, forward", "s"),
        ("profile.types.GELU.forward_s", "GELU, forward", "s"),
    ]
    assert all(metric.main for metric in found)


def test_what_a_report_quotes_comes_first() -> None:
    quoted = "profile.by_name.net.act.forward_s"
    found = {metric.name: metric for metric in table([profiled("Linear")], {quoted})}
    assert found[quoted].title == "net.act, forward" and found[quoted].main
    assert [name for name, metric in found.items() if metric.main] == [quoted]


def test_runs_that_trained_offer_none_of_it() -> None:
    plain = parse({"train": {}, "test": {"loss": 1.0}, "score": None, "time": {"training_s": 1.0}, "profile": None})
    assert [metric.name for metric in table([plain])] == ["time.training_s", "test.loss"]
