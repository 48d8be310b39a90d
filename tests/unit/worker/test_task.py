"""What a task may return: means, sums with counts, pairs, dicts; and the sentences for what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.base.errors import BadInput, RunFailed
from paceline.worker.measure.tally import Tally, finite
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.load import find, load_task, values_for
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import doubt, usual_forward, usual_loss, usual_score

WORLD: Any = type("Alone", (), {"size": 1, "rank": 0})()


def task(**more: Any) -> Task:
    made: dict[str, Any] = {"forward": usual_forward, "loss": usual_loss, "score": usual_score, **more}
    return Task(name="t", model=torch.nn.Identity, train_data=list, test_data=list, **made)


def test_a_mean_becomes_a_sum() -> None:
    total, count = task(loss=lambda o, b: torch.tensor(0.5)).loss_of(None, None, 8)[:2]
    assert (float(total), count) == (4.0, 8.0)


def test_a_pair_is_taken_as_it_is() -> None:
    total, count = task(loss=lambda o, b: (torch.tensor(3.0), 2)).loss_of(None, None, 8)[:2]
    assert (float(total), count) == (3.0, 2.0)


@pytest.mark.parametrize("value", [torch.zeros(3), "no", None, {"a": 1}])
def test_other_losses_are_refused(value: object) -> None:
    with pytest.raises(RunFailed, match="must return one number"):
        task(loss=lambda o, b: value).loss_of(None, None, 8)


def test_scores_of_every_form() -> None:
    sums = task(score=lambda o, b: {"a": (6.0, 3), "b": 0.5, "c": torch.tensor(2.0)}).score_sums(None, None, 4)
    assert {name: float(s) / float(n) for name, (s, n) in sums.items()} == {"a": 2.0, "b": 0.5, "c": 2.0}
    assert task(score=lambda o, b: 0.25).score_sums(None, None, 4) == {"score": (1.0, 4)}
    with pytest.raises(RunFailed, match="score 'a' is a list"):
        task(score=lambda o, b: {"a": [1, 2, 3]}).score_sums(None, None, 4)


def test_a_column_of_outputs_is_not_broadcast_against_a_row() -> None:
    outputs, target = torch.zeros(4, 1), torch.ones(4)
    total, count = usual_loss(outputs, (None, target))
    assert (float(total), count) == (4.0, 4)
    total, count = usual_loss(torch.zeros(4, 1, 3), (None, torch.ones(4, 3, 1)))
    assert (float(total), count) == (12.0, 12)


@pytest.mark.parametrize(
    ("outputs", "target", "said"),
    [
        ((4, 2), torch.zeros(4), "must match, but for dimensions of size 1"),
        ((4, 2, 3), torch.zeros(4, 3, 2), "must match"),
        ((4, 6), torch.zeros(4, 2, 3), "must match"),
        ((4, 1), torch.zeros(4, dtype=torch.long), "one number for each target is no classification"),
        ((4,), torch.zeros(4, dtype=torch.long), "one number for each target is no classification"),
        (
            (4, 7, 3),
            torch.zeros(4, 7, dtype=torch.long),
            r"classes must be the second dimension; return outputs.movedim\(-1, 1\)",
        ),
        ((4, 3), torch.zeros(4, 2, dtype=torch.long), "cross entropy needs one number for each class"),
    ],
)
def test_outputs_that_have_no_usual_loss_are_refused(outputs: tuple[int, ...], target: torch.Tensor, said: str) -> None:
    with pytest.raises(RunFailed, match=said):
        usual_loss(torch.zeros(*outputs), (None, target))


@pytest.mark.parametrize(
    ("outputs", "target", "said"),
    [
        ((4, 3), torch.tensor([0, 1, 2, 1]), None),
        ((4, 3, 3), torch.zeros(4, 3, dtype=torch.long), "second dimension or the last"),
        ((4, 5, 3), torch.zeros(4, 3, dtype=torch.long), None),
        ((4,), torch.tensor([0.0, 1.0, 1.0, 0.0]), "all of them 0 or 1"),
        ((4,), torch.tensor([0.0, 1.0, 1.0, 0.5]), None),
        ((2, 3), torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]), "add up to 1"),
    ],
)
def test_a_loss_that_was_guessed_is_said(outputs: tuple[int, ...], target: torch.Tensor, said: str | None) -> None:
    found = doubt(torch.zeros(*outputs), (None, target))
    assert found is None if said is None else said in (found or "")


def test_inputs_are_given_as_the_model_takes_them() -> None:
    def model(*words: Any, **named: Any) -> Any:
        return words, named

    y = torch.zeros(1)
    assert usual_forward(model, ("x", y)) == (("x",), {})
    assert usual_forward(model, (("a", "b"), y)) == (("a", "b"), {})
    assert usual_forward(model, ({"a": 1}, y)) == ((), {"a": 1})
    assert usual_forward(model, ("a", "b", y)) == (("a", "b"), {})
    assert usual_forward(model, {"x": 1}) == (({"x": 1},), {})


def test_no_usual_loss_for_odd_outputs() -> None:
    with pytest.raises(RunFailed, match="define it"):
        usual_loss({"logits": 1}, (1, torch.zeros(1)))
    assert usual_score({"logits": 1}, {"x": 1}) == {}


def test_ignored_targets_count_for_nothing_on_any_rank() -> None:
    """-100 is torch's sign for it; the mean over a rank's own share would weigh ranks wrongly."""
    outputs, target = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]]), torch.tensor([0, -100, 1])
    total, count = usual_loss(outputs, (None, target))
    whole = torch.nn.functional.cross_entropy(outputs, target)
    assert float(total) / count == pytest.approx(float(whole)) and count == 2
    hits, counted = usual_score(outputs, (None, target))["accuracy"]
    assert (int(hits), int(counted)) == (1, 2)


@pytest.mark.parametrize(
    ("outputs", "target"),
    [
        (torch.zeros(4, 1), torch.zeros(4, dtype=torch.long)),  # one logit: argmax is always 0
        (torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.long)),  # would broadcast to 4 x 4
        (torch.zeros(4, 2), torch.zeros(4)),  # a mean and a variance for one target
    ],
)
def test_no_usual_score_where_it_would_be_wrong(outputs: torch.Tensor, target: torch.Tensor) -> None:
    assert usual_score(outputs, (None, target)) == {}


@pytest.mark.parametrize("name", ["loss", "of", "evaluated"])
def test_reserved_score_names_are_refused(name: str) -> None:
    with pytest.raises(RunFailed, match="may not be called"):
        task(score=lambda o, b: {name: 1.0}).score_sums(None, None, 4)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((torch.zeros(3), torch.zeros(4)), "different lengths: 3, 4"),
        ((np.zeros((0, 2)), np.zeros(0)), "returned no samples"),
        ({"x": 1}, "returned a dict"),
        ("text", "returned a str"),
        (7, "returned a int"),
        (torch.tensor(3.0), "returned a single number"),
        ((x for x in "ab"), "returned a generator"),
    ],
)
def test_data_that_is_no_data(data: object, said: str) -> None:
    with pytest.raises(RunFailed, match=said):
        make_feed(data, what="t: train_data()", collate=None)


def test_labels_become_int64_and_inputs_keep_their_type() -> None:
    feed: Any = make_feed((np.zeros((2, 3), np.uint8), np.array([1, 2], np.int16)), what="", collate=None)
    assert [tensor.dtype for tensor in feed.tensors] == [torch.uint8, torch.int64]


def test_tally_sums_before_it_divides() -> None:
    tally = Tally()
    tally.add({"loss": (torch.tensor(6.0), 3)}, 3)
    tally.add({"loss": (torch.tensor(1.0), 1)}, 1)
    assert tally.means() == {"loss": 7 / 4}, "not the mean of 2 and 1"
    assert tally.over(WORLD).num == 4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_fails(value: float) -> None:
    with pytest.raises(RunFailed, match=f"the loss became {value} here"):
        finite({"loss": value}, where="here")


def test_parameters_come_from_signatures(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    path.write_text(
        "def model(hidden: int = 3, wide=False): ...\ndef train_data(data=None, num=1.5): ...\ndef test_data(data=None): ...\n"
    )
    found = find(str(path))
    assert [(p.name, p.type, p.default) for p in found.params] == [
        ("hidden", "int", 3), ("wide", "bool", False), ("num", "float", 1.5),
    ]  # fmt: skip
    assert found.takes_data
    assert values_for(found.params, {"hidden": "8"}) == {"hidden": 8, "wide": False, "num": 1.5}


def test_parameters_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    head = "from typing import Optional\n"
    sizes = "(1, 2)"
    path.write_text(
        head
        + f"def model(flag: bool | None = None, size: Optional[int] = None, shape={sizes}, must: float = ..., *, x): ...\n"
        "def train_data(): ...\ndef test_data(): ...\n"
    )
    found = {param.name: param for param in find(str(path)).params}
    assert [found[name].type for name in ("flag", "size", "shape")] == ["bool", "int", "other"]
    assert found["x"].required and not found["flag"].required
    assert found["flag"].convert("false") is False
    with pytest.raises(ValueError, match="cannot be typed"):
        found["shape"].convert("3")
    assert "shape" not in values_for(tuple(found.values()), {}), "the task's own default stays untouched"


def test_which_class_is_the_task(tmp_path: Path) -> None:
    body = "class {}:\n def model(self): ...\n def train_data(self): ...\n def test_data(self): ...\n"
    path = tmp_path / "t.py"
    path.write_text(body.format("One") + "class Other: ...\n")
    assert getattr(find(str(path)).made, "__name__", "") == "One"
    path.write_text(body.format("One") + body.format("Two"))
    assert getattr(find(f"{path}:Two").made, "__name__", "") == "Two"
    with pytest.raises(BadInput, match=r"several tasks; say which: t\.py:One, t\.py:Two"):
        find(str(path))
    with pytest.raises(BadInput, match="unknown class 'Tow'; did you mean 'Two'"):
        find(f"{path}:Tow")


HOOKS = """
import torch
def model(): return torch.nn.Linear(1, 1)
def train_data(): return torch.ones(2, 1), torch.ones(2)
test_data = train_data
"""


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("def augment(batch, keys): return batch", ["augment"]),
        ("def augment(image): return image", []),
        ("def units(): return 16", []),
        ("def units(model): return [model]", ["units"]),
        ("augment = 3", []),
    ],
)
def test_a_helper_of_the_file_is_not_taken_for_a_function_of_the_task(
    tmp_path: Path, line: str, taken: list[str]
) -> None:
    (tmp_path / "mine.py").write_text(HOOKS + line)
    assert load_task(str(tmp_path / "mine.py"), {}, None).defines == taken


@pytest.mark.parametrize("line", ["def augment(b, k): return b", "def units(net): return [net]"])
def test_what_might_be_meant_is_asked_about(tmp_path: Path, line: str) -> None:
    (tmp_path / "mine.py").write_text(HOOKS + line)
    with pytest.raises(RunFailed, match="its parameters must be called"):
        load_task(str(tmp_path / "mine.py"), {}, None)
