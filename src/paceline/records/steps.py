"""How many steps and epochs a spec means, for so many training samples. Arithmetic only; the one place it is done in the parent."""

from __future__ import annotations

import math

from paceline.spec.run import Spec


def num_steps(spec: Spec, num_train: int) -> int:
    """`steps` where it is set; else every sample once an epoch, with a short last batch.

    >>> num_steps(Spec(task="features", batch=32, epochs=3), 100)
    12
    """
    return spec.steps or math.ceil(num_train / spec.batch) * (spec.epochs or 1)


def num_epochs(spec: Spec, num_train: int) -> int:
    """Passes over the data that are begun; an evaluation follows each."""
    return math.ceil(num_steps(spec, num_train) * spec.batch / num_train)
