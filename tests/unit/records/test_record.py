"""A record on disk: read with every type checked, written again as it was, and readable without the keys that came later."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import BadInput
from paceline.base.files import write_json
from paceline.records.layout import RunDir
from paceline.records.record import find, load, parse
from paceline.records.section import Place, Section
from unit.report import synthetic


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of two ranks as gather writes it."""
    folder = tmp_path_factory.mktemp("study")
    cell = synthetic.Cell("1x2", {"on": "1x2"}, 4.0)
    synthetic.write(synthetic.Study([cell], repeats=1, epochs=2, marks=3, target=0.5), folder)
    return RunDir(next(find(folder)).run_dir)


def document(run: RunDir) -> dict[str, Any]:
    return json.loads(run.result.read_text())


def text(value: Any) -> str:
    return json.dumps(value, indent=1)


def test_what_was_read_is_written_as_it_was(written: RunDir) -> None:
    """Byte for byte, keys of another version in their places; only the paths are where the folder lies now."""
    value = document(written)
    value["ranks"][0]["new"] = {"a": [1, None]}
    value = {"flops": {"per_step": 1e9}, **value}
    assert text(parse(value).plain) == text(value)
    assert text(load(written.path).plain) == text(document(written) | {"run_dir": str(written.path)})


def test_what_gather_made_has_the_keys_of_the_contract_in_their_order(written: RunDir) -> None:
    names = [
        "schema", "outcome", "kind", "why", "log", "run_dir", "key", "spec", "applied", "train", "test", "score", "ranks", "time", "steps",
        "samples", "graph", "throughput", "steady", "memory", "traffic", "energy", "cost", "weights", "weights_hash", "best",
        "num_parameters", "history", "evaluations", "stopped", "warnings", "probe", "restarts", "queue", "fingerprint", "finished_t",
        "profile",
    ]  # fmt: skip
    value = document(written)
    assert list(value) == names
    assert list(value["time"]) == [
        "wall_s",
        "training_s",
        "parts",
        "startup",
        "hidden_s",
        "critical_rank",
        "to_target_s",
    ]
    assert list(value["history"][0]) == ["epoch", "iteration", "lr", "train", "t_s", "test"]


def test_sections_are_typed(written: RunDir) -> None:
    record = load(written.path)
    assert record.time is not None and record.time.wall_s == document(written)["time"]["wall_s"]
    assert [rank.host for rank in record.ranks] == ["bench-1", "bench-1"] and record.ranks[0].late is not None
    assert record.test["evaluated"] == record.test.num_samples == record.test.of == 2000
    assert (
        record.test.names == ["loss", "accuracy"] and record.fingerprint is not None and record.fingerprint.cores == 8
    )
    assert record["time"]["parts"] == record.time["parts"] == record.time.parts, "by their keys, as scripts read them"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("throughput", "fast", "throughput should be a number, but is 'fast'"),
        ("outcome", None, "outcome should be text, but is None"),
        ("time", [1.0], "time should be an object, but is [1.0]"),
        ("time.training_s", True, "time.training_s should be a number, but is True"),
        ("ranks", {"0": {}}, "ranks should be a list"),
        ("ranks.1.rank", 1.5, "ranks.1.rank should be a whole number, but is 1.5"),
        ("ranks.0.time.forward", {}, "ranks.0.time.forward should be a number, but is {}"),
        ("test.accuracy", "90 %", "test.accuracy should be a number, but is '90 %'"),
        ("history.1.epoch", "two", "history.1.epoch should be a whole number"),
        ("fingerprint.git.changed", "yes", "fingerprint.git.changed should be true or false, but is 'yes'"),
    ],
)
def test_a_value_of_another_type_is_named(key: str, value: Any, expected: str, written: RunDir, tmp_path: Path) -> None:
    damaged = document(written)
    *way, last = key.split(".")
    inside: Any = damaged
    for word in way:
        inside = inside[int(word) if isinstance(inside, list) else word]
    inside[last] = value
    run = RunDir(tmp_path)
    write_json(run.result, damaged)
    with pytest.raises(BadInput) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{run.result}: {expected}") and str(error.value).endswith("the file is damaged")


def test_a_key_that_must_be_there_is_named(written: RunDir, tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    value = document(written)
    del value["ranks"][1]["rank"]
    write_json(run.result, value)
    with pytest.raises(BadInput, match=r"result\.json: ranks\.1\.rank is missing"):
        load(tmp_path)
    del value["time"], value["key"]
    write_json(run.result, value)
    with pytest.raises(BadInput, match="key, time missing"):
        load(tmp_path)
    write_json(run.result, [])
    with pytest.raises(BadInput, match="not a record of ours"):
        load(tmp_path)


def test_a_record_of_an_earlier_time_is_read_and_keeps_its_keys(written: RunDir) -> None:
    newer = ("traffic", "graph", "energy", "cost", "steps", "samples", "queue", "num_parameters", "profile", "steady")
    value = {name: item for name, item in document(written).items() if name not in newer}
    value["ranks"] = [{"rank": row["rank"], "host": row["host"], "train": row["train"]} for row in value["ranks"]]
    record = parse(value)
    assert record.graph is None and record.steps is None and record.profile is None and record.ranks[0].memory is None
    assert list(record.plain) == list(value) and record.duration_s == value["time"]["wall_s"]


def _sections(kind: type[Section]) -> set[type[Section]]:
    return {kind, *(sub for one in kind.__subclasses__() for sub in _sections(one))}


NEEDED = {
    "rank": 0,
    "epoch": 0,
    "iteration": 0,
    "job": 1,
    "name": "x",
    "kind": "module",
}  # keys without which a section says nothing


@pytest.mark.parametrize("kind", sorted(_sections(Section) - {Section}, key=lambda kind: kind.__name__))
def test_whatever_stands_under_a_key_is_read_or_refused_in_a_sentence(kind: type[Section]) -> None:
    keys = {one.metadata.get("key", one.name) for one in fields(kind)} - {"document", "without"}
    least = {name: value for name, value in NEEDED.items() if name in keys}
    assert kind.read(least, Place("made by hand")).plain == least
    answers = [(key, _answer(kind, {**least, key: odd})) for key in keys for odd in ODD]
    assert all(answer is None or answer.startswith(f"made by hand: {key}") for key, answer in answers)
    assert {key for key, answer in answers if answer is not None} >= keys - {"spec"}, "every key refuses something"


ODD: tuple[Any, ...] = (None, True, 1.5, "x", [1], [{}], {}, {"a": [1]})


def _answer(kind: type[Section], value: dict[str, Any]) -> str | None:
    """None where it is read, and then written as it was."""
    try:
        section = kind.read(value, Place("made by hand"))
    except BadInput as error:
        return str(error)
    assert section.plain == value
    return None
