"""How many steps a run has, from its settings and the number of training samples. Nobody else computes it."""

from __future__ import annotations

from paceline.spec.run import Spec


def steps_per_epoch(spec: Spec, num_train: int) -> int:
    """The last batch of an epoch may be short; it is a step all the same."""
    return -(-num_train // spec.batch)


def num_steps(spec: Spec, num_train: int) -> int:
    """All steps of the run: as many as were asked for, or as the epochs have."""
    return spec.steps if spec.steps is not None else steps_per_epoch(spec, num_train) * (spec.epochs or 1)


def num_epochs(spec: Spec, num_train: int) -> int:
    """Epochs that are begun. Each ends with an evaluation, even one that `steps` cuts short."""
    return -(-num_steps(spec, num_train) // steps_per_epoch(spec, num_train))


def num_evaluations(spec: Spec, num_train: int) -> int:
    """At most: one for each epoch, and those of `evaluate_every` that are not at the end of one."""
    if spec.evaluate_every is None:
        return num_epochs(spec, num_train)
    steps, each = num_steps(spec, num_train), steps_per_epoch(spec, num_train)
    every = {*range(spec.evaluate_every, steps, spec.evaluate_every), *range(each, steps, each), steps}
    return len(every)
