"""What cannot be asked of an update: optimizers, schedules, clipping."""

from __future__ import annotations

from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.axes.schedules import SCHEDULES
from paceline.spec.rules.rule import Rule

UPDATE: tuple[Rule, ...] = (
    Rule(
        "own-optimizer-exists",
        lambda spec, known: OPTIMIZERS[spec.optimizer].is_tasks and known.own_optimizer is False,
        "optimizer={optimizer}, but the task builds none: define optimizer(model, lr), which returns a torch.optim.Optimizer, or name "
        "one of ours",
    ),
    Rule(
        "own-schedule-exists",
        lambda spec, known: SCHEDULES[spec.schedule].is_tasks and known.own_schedule is False,
        "schedule={schedule}, but the task has none: define schedule(step, steps), which returns what lr is multiplied by, or name one of "
        "ours",
    ),
    Rule(
        "momentum-has-a-place",
        lambda spec, known: spec.momentum > 0 and not OPTIMIZERS[spec.optimizer].takes_momentum,
        "momentum={momentum} with optimizer={optimizer}: {optimizer} has no momentum setting; use sgd or rmsprop, or leave it out",
    ),
    Rule(
        "nesterov-has-momentum",
        lambda spec, known: spec.nesterov and (not OPTIMIZERS[spec.optimizer].takes_nesterov or spec.momentum == 0),
        "nesterov=true with optimizer={optimizer} momentum={momentum}: Nesterov's momentum is a way of sgd with momentum; use "
        "optimizer=sgd momentum=0.9, or leave it out",
    ),
    Rule(
        "fused-exists",
        lambda spec, known: spec.update == "fused" and not OPTIMIZERS[spec.optimizer].has_fused,
        "update=fused with optimizer={optimizer}: torch has no fused {torch_class}; use update=foreach or single",
    ),
    Rule(
        "one-decay",
        lambda spec, known: spec.lr_decay > 0 and SCHEDULES[spec.schedule].moves,
        "lr_decay={lr_decay} with schedule={schedule}: two rules for one learning rate; use one of them",
    ),
    Rule(
        "schedule-uses-factor",
        lambda spec, known: spec.schedule_factor != 0.1 and not SCHEDULES[spec.schedule].uses_factor,
        "schedule_factor={schedule_factor} with schedule={schedule}: only step and exponential multiply by a factor; leave it out",
    ),
    Rule(
        "schedule-uses-every",
        lambda spec, known: spec.schedule_every != 1 and not SCHEDULES[spec.schedule].uses_every,
        "schedule_every={schedule_every} with schedule={schedule}: only schedule=step counts epochs; leave it out",
    ),
    Rule(
        "schedule-warms-itself",
        lambda spec, known: spec.warmup > 0 and SCHEDULES[spec.schedule].warms_itself,
        "warmup={warmup} with schedule={schedule}: it begins as it says itself (onecycle: with 30 % of the steps, the task's own: with "
        "what it returns); leave warmup out",
    ),
    Rule(
        "warmup-ends",
        lambda spec, known: spec.steps is not None and spec.warmup >= spec.steps,
        "warmup={warmup} with steps={steps}: the rate would still be rising when the run ends; use a shorter warm-up",
    ),
    Rule(
        "lr-batch-is-used",
        lambda spec, known: spec.lr_batch != 32 and spec.lr_scale == "none",
        "lr_batch={lr_batch} with lr_scale=none: it is what lr is scaled from; add lr_scale=linear or sqrt, or leave it out",
    ),
)
