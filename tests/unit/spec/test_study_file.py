"""A study file's mistakes, each at its line and column; comma words over a file; the quick version."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.base.errors import BadInput
from paceline.spec import yaml
from paceline.spec.study import Change, StudyFile, changes, load, parse, quickened, schema, with_words

GOOD = """\
study: mine
task: mnist-convnet
settings: {epochs: 2, lr: 1e-3}
sweep:
  on: [1x1, 1x2]
  batch: [32, 64]
quick:
  settings: {steps: 5}
  repeats: 2
"""


def study(text: str = GOOD) -> StudyFile:
    return parse(yaml.read(text, path="s.yaml"))


BROKEN = {
    "syntax": ("study: x\ntask: [a\nb: 3\n", "s.yaml:3:2: not valid YAML"),
    "duplicate": ("study: x\ntask: lenet\nstudy: y\n", "s.yaml:3:1: not valid YAML"),
    "unknown key": (GOOD + "sweeep: {}\n", "s.yaml:10:9: sweeep: unknown name 'sweeep'; did you mean 'sweep'?"),
    "value": (GOOD.replace("1x2", "1y2"), "s.yaml:5:13: on=1y2"),
    "setting": (GOOD.replace("batch:", "bach:"), "s.yaml:6:10: unknown setting 'bach'; did you mean 'batch'?"),
    "type": (GOOD.replace("epochs: 2", "epochs: two"), "s.yaml:3:20: epochs=two: must be a whole number"),
    "range": (GOOD + "repeats: 0\n", "s.yaml:10:10: repeats: must be at least 1"),
    "missing": ("study: x\n", "s.yaml:1:1: task: is required"),
    "list": ("- 1\n", "s.yaml:1:1: a study file is a mapping"),
    "name": (GOOD.replace("study: mine", "study: ../up"), "s.yaml:1:8: study:"),
    "both": (GOOD.replace("epochs: 2", "batch: 3"), "batch stands in settings and in sweep"),
    "empty sweep": (GOOD.replace("[1x1, 1x2]", "[]"), "s.yaml:5:7: sweep.on:"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_mistakes_are_shown_where_they_are(what: str) -> None:
    text, said = BROKEN[what]
    with pytest.raises(BadInput) as caught:
        study(text)
    assert said in str(caught.value)


def test_yaml_1_2_not_1_1() -> None:
    """`no` is a word and 1e-3 a number: what PyYAML gets wrong."""
    document = yaml.read("a: no\nb: 1e-3\nc: 12:30:00\n", path="x")
    assert document.value == {"a": "no", "b": 0.001, "c": "12:30:00"}


def test_words_over_a_file() -> None:
    file = with_words(study(), {"batch": "16", "lr": "0.1,0.2", "epochs": "5"})
    assert file.settings == {"epochs": "5", "batch": "16"}
    assert file.sweep == {"on": ["1x1", "1x2"], "lr": ["0.1", "0.2"]}


def test_quick_gives_way_to_what_was_typed() -> None:
    assert quickened(study(), {}).settings == {"lr": 0.001, "steps": 5}
    assert quickened(study(), {"epochs": "1"}).settings == {"epochs": 2, "lr": 0.001}
    assert quickened(study(), {}).repeats == 2


def test_a_task_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("study: x\ntask: my_task.py\nsweep: {batch: [1, 2]}\n")
    assert load(tmp_path / "s.yaml").task == str(tmp_path / "my_task.py")


def test_the_schema_knows_every_setting() -> None:
    found = schema()
    assert found["properties"]["settings"]["properties"]["optimizer"]["enum"] == [
        "adam",
        "adamw",
        "sgd",
        "rmsprop",
        "task",
    ]
    assert found["properties"]["sweep"]["properties"]["batch"]["type"] == "array"


def test_what_was_typed_wins_over_cells_and_what_it_excludes() -> None:
    """`launch-modes on=1x4` must not run the file's own topologies; `steps` takes the file's epochs away."""
    file = study(
        "study: s\ntask: lenet\nsettings: {epochs: 2}\ncells: [{on: 1x1, launcher: local}, {on: 1x2, launcher: spawn}]\n"
    )
    changed = with_words(file, {"on": "1x4", "steps": "9"})
    assert changed.cells == [{"launcher": "local"}, {"launcher": "spawn"}]
    assert changed.settings == {"on": "1x4", "steps": "9"}


def test_a_baseline_that_is_typed_away_gives_way() -> None:
    file = study(GOOD + "baseline: {on: 1x1, batch: 32}\n")
    assert with_words(file, {"lr": "1"}).baseline == {"on": "1x1", "batch": 32}
    changed = with_words(file, {"batch": "16,64"})
    assert changed.baseline is None and any("baseline" in note for note in changed.notes)


@pytest.mark.parametrize(
    ("words", "said", "shorter"),
    [
        ({"epochs": "1"}, ["epochs=1 (the study: 3)"], True),
        ({"epochs": "9"}, ["epochs=9 (the study: 3)"], False),
        ({"steps": "20"}, ["steps=20"], True),
        ({"epochs": "3"}, [], False),
        ({"lr": "0.1"}, ["lr=0.1 (the study: 0.0005)"], False),
        ({"batch": "32,64"}, ["batch=32,64 (the study: 32)"], False),
        ({"on": "1x1"}, ["on=1x1 (the study: 1x1,1x2)"], False),
        ({"data": "/home/me/mine", "timeout": "9"}, ["data=FOLDER"], False),
    ],
)
def test_words_that_make_another_study(words: dict[str, str], said: list[str], shorter: bool) -> None:
    """A study shortened by words gave verdicts without a word about it."""
    file = StudyFile.model_validate({
        "study": "s", "task": "mnist-convnet", "settings": {"epochs": 3, "batch": 32}, "cells": [{"on": "1x1"}, {"on": "1x2"}],
    })  # fmt: skip
    found = changes(file, words)
    assert [one.words for one in found] == said and any(one.shorter for one in found) is shorter


def test_fewer_samples_are_a_smaller_study() -> None:
    file = StudyFile.model_validate({"study": "s", "task": "features"})
    assert changes(file, {"num_train": "100"})[0] == Change("num_train=100 (the study: 60000)", True)


def test_quick_may_have_cells_of_its_own() -> None:
    file = StudyFile.model_validate({
        "study": "s", "task": "features", "cells": [{"on": "1x1"}, {"on": "1x2"}], "quick": {"cells": [{"on": "1x1"}]},
    })  # fmt: skip
    assert quickened(file, {}).cells == [{"on": "1x1"}]
