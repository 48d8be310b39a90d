"""What cannot be had of a task's data: samples for every rank, micro-batches, loader processes, a score to reach."""

from __future__ import annotations

import os

from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.rules.rule import Rule
from paceline.spec.tasks import known_task

SAMPLES: tuple[Rule, ...] = (
    Rule(
        "sample-for-every-rank",
        lambda spec, known: SHARDINGS[spec.sharding].cuts_samples and spec.batch < spec.topology.world_size,
        "batch={batch} on {world_size} ranks leaves some without a sample in every step: use batch={world_size} or "
        "more, or batch_per_rank",
    ),
    Rule(
        "accumulate-has-samples",
        lambda spec, known: (
            spec.accumulate > 1
            and spec.batch
            < spec.accumulate * (spec.topology.world_size if SHARDINGS[spec.sharding].cuts_samples else 1)
        ),
        "accumulate={accumulate} with batch={batch} on {world_size} ranks: a rank's share of a step has fewer samples than "
        "micro-batches; use a smaller accumulate, or a larger batch",
    ),
    Rule(
        "accumulate-has-a-maker",
        lambda spec, known: spec.accumulate > 1 and spec.wrap == "accelerate",
        "accumulate={accumulate} with wrap=accelerate: in this version only our own step cuts a batch into micro-batches; use wrap=none",
    ),
    Rule(
        "data-exists",
        lambda spec, known: spec.data is not None and not os.path.isdir(spec.data),
        "data={data}: there is no such folder",
    ),
    Rule(
        "target-in-reach",
        lambda spec, known: spec.target is not None and known_task(spec.task).accuracy and not 0 < spec.target <= 1,
        "target={target}: accuracies are fractions, so it must lie between 0 and 1 (97 % is 0.97)",
    ),
    Rule(
        "target-has-a-direction",
        lambda spec, known: spec.target is not None and not known.knows_better,
        "target={target}, but the task does not say which way its own score is good: add better = 'higher' or "
        "better = 'lower' to it",
    ),
    Rule(
        "stop-has-a-target",
        lambda spec, known: spec.stop_at is not None and spec.patience is None and spec.target is None,
        "stop_at={stop_at}, but no target: say which score ends the run, for example target=0.9, or use stop_at=plateau:5",
    ),
    Rule(
        "plateau-has-a-direction",
        lambda spec, known: spec.patience is not None and not known.knows_better,
        "stop_at={stop_at}, but the task does not say which way its own score is good: add better = 'higher' or "
        "better = 'lower' to it",
    ),
    Rule(
        "best-has-a-direction",
        lambda spec, known: spec.keep != "last" and not known.knows_better,
        "keep={keep}, but the task does not say which way its own score is good, so none is the best: add better = 'higher' or "
        "better = 'lower' to it",
    ),
    Rule(
        "stop-after-an-average",
        lambda spec, known: spec.stop_at is not None and (spec.evaluate_every or spec.sync_every) < spec.sync_every,
        "stop_at={stop_at} with evaluate_every={evaluate_every} and sync_every={sync_every}: the run could end before the ranks were "
        "averaged once; use evaluate_every={sync_every} or more",
    ),
    Rule(
        "evaluation-comes",
        lambda spec, known: (
            spec.evaluate_every is not None and spec.steps is not None and spec.evaluate_every > spec.steps
        ),
        "evaluate_every={evaluate_every} with steps={steps}: the run would be over before; use a smaller evaluate_every, or leave it "
        "out: every run is evaluated at its end",
    ),
    Rule(
        "workers-have-work",
        lambda spec, known: spec.workers > 0 and known.train is not None and known.train.kind in ("tensors", "mapped"),
        "workers={workers}, but the task's data is in memory already, or in a mapped file, and batched by one indexed copy: workers only "
        "serve a map-style Dataset; leave it out",
    ),
    Rule(
        "stream-has-its-order",
        lambda spec, known: spec.shuffle and known.train is not None and known.train.kind == "stream",
        "shuffle=true, but the task's training data is an IterableDataset, which has an order of its own: use shuffle=false",
    ),
    Rule(
        "stream-has-an-end",
        lambda spec, known: known.train is not None and known.train.endless and spec.steps is None,
        "the task's training data is an IterableDataset without a length, so nobody knows where an epoch of it ends: give steps=, or a "
        "__len__ to it",
    ),
    Rule(
        "stream-in-the-rank",
        lambda spec, known: spec.workers > 0 and known.train is not None and known.train.kind == "stream",
        "workers={workers}, but the task's training data is an IterableDataset: loader processes would each give every "
        "sample again; use workers=0",
    ),
)
