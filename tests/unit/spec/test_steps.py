"""How many steps a run has, whichever way its length was said: the short last batch of an epoch is a step, an epoch cut short is begun."""

from __future__ import annotations

import pytest

from paceline.spec.run import Spec
from paceline.spec.steps import num_epochs, num_steps, steps_per_epoch


@pytest.mark.parametrize(
    ("asked", "num_train", "each", "steps", "epochs"),
    [
        ({"batch": 32, "epochs": 3}, 96, 3, 9, 3),
        ({"batch": 32, "epochs": 3}, 100, 4, 12, 3),
        ({"batch": 32, "epochs": 2}, 10, 1, 2, 2),
        ({"batch": 32, "epochs": None, "steps": 5}, 100, 4, 5, 2),
        ({"batch": 32, "epochs": None, "steps": 8}, 100, 4, 8, 2),
    ],
)
def test_steps_of_a_run(asked: dict[str, int | None], num_train: int, each: int, steps: int, epochs: int) -> None:
    spec = Spec.model_validate({"task": "features", **asked})
    assert (steps_per_epoch(spec, num_train), num_steps(spec, num_train), num_epochs(spec, num_train)) == (each, steps, epochs)  # fmt: skip
