"""The table of what cannot be done together, and why. Flat: no rule calls another, none changes a spec.

Two stages: on the spec and the machine; and, for a user's task or a format that depends on layers, on what a `describe` job found.
"""

from __future__ import annotations

import os

from paceline.spec.rule import Known, Rule
from paceline.spec.rules_graph import GRAPH, step_ways
from paceline.spec.rules_kernel import KERNEL
from paceline.spec.rules_messages import MESSAGES
from paceline.spec.rules_precision import PRECISION
from paceline.spec.rules_sharding import SHARDING
from paceline.spec.rules_start import START, queue_words
from paceline.spec.rules_update import UPDATE
from paceline.spec.run import Spec
from paceline.spec.tasks import BUILTIN

GIB = 1 << 30
# A rank that has imported torch and joined a group holds about this much before it has any data (measured: 325 MB resident
# with torch 2.13 on a CPU, part of it shared between ranks).
RANK_BYTES = 300 << 20


RULES: tuple[Rule, ...] = (
    Rule(
        "torch-installed",
        lambda spec, known: known.host.torch is None,
        "training needs torch, and it is not installed in this Python: pip install torch",
    ),
    Rule(
        "ranks-fit-memory",
        lambda spec, known: not spec.in_queue and spec.topology.processes * RANK_BYTES > known.host.memory_bytes,
        "on={on} asks for {processes} processes; with torch alone each takes about 300 MB, more than this machine's "
        "{memory_gib:.0f} GiB together: use fewer processes",
    ),
    Rule(
        "threads-in-reason",
        lambda spec, known: (
            not spec.in_queue and isinstance(spec.threads, int) and spec.threads > 64 * known.host.cores
        ),
        "threads={threads} on a machine with {cores} cores: no work could be spread over so many; use threads={cores} or fewer",
    ),
    Rule(
        "sample-for-every-rank",
        lambda spec, known: spec.sharding != "tensor" and spec.batch < spec.topology.world_size,
        "batch={batch} on {world_size} ranks leaves some without a sample in every step: use batch={world_size} or "
        "more, or batch_per_rank",
    ),
    Rule(
        "accumulate-has-samples",
        lambda spec, known: (
            spec.accumulate > 1
            and spec.batch < spec.accumulate * (1 if spec.sharding == "tensor" else spec.topology.world_size)
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
        "cuda-present",
        lambda spec, known: spec.device == "cuda" and not spec.in_queue and known.host.usable_gpus == 0,
        "device=cuda, but this machine has no GPU that this torch ({torch}) can use: use device=cpu",
    ),
    Rule(
        "a-gpu-each",
        lambda spec, known: (
            spec.device == "cuda" and not spec.in_queue and 0 < known.host.usable_gpus < spec.topology.processes
        ),
        "device=cuda with {processes} processes on {usable_gpus} GPUs: two ranks would share a GPU and measure each "
        "other; use on=1x{usable_gpus} or device=cpu",
    ),
    Rule(
        "data-exists",
        lambda spec, known: spec.data is not None and not os.path.isdir(spec.data),
        "data={data}: there is no such folder",
    ),
    Rule(
        "target-in-reach",
        lambda spec, known: (
            spec.target is not None
            and spec.task in BUILTIN
            and BUILTIN[spec.task].accuracy
            and not 0 < spec.target <= 1
        ),
        "target={target}: accuracies are fractions, so it must lie between 0 and 1 (97 % is 0.97)",
    ),
    Rule(
        "target-has-a-direction",
        lambda spec, known: spec.target is not None and not known.knows_better,
        "target={target}, but the task does not say which way its own score is good: add better = 'higher' or "
        "better = 'lower' to it",
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
        "stream-in-the-rank",
        lambda spec, known: spec.workers > 0 and known.train is not None and known.train.kind == "stream",
        "workers={workers}, but the task's training data is an IterableDataset: loader processes would each give every "
        "sample again; use workers=0",
    ),
    Rule(
        "profile-counts-batches",
        lambda spec, known: spec.profile != "none" and spec.steps is None,
        "profile={profile} with epochs={epochs}: a profile counts batches: give steps=N instead",
    ),
    Rule(
        "profile-of-one-process",
        lambda spec, known: spec.profile != "none" and spec.topology.world_size > 1,
        "profile={profile} with on={on}: a profile looks into one process; use on=1x1 (`paceline run` without profile says "
        "for every rank what it computed, waited and sent)",
    ),
    Rule(
        "profile-starts-itself",
        lambda spec, known: spec.profile != "none" and spec.launcher != "local",
        "profile={profile} with launcher={launcher}: one process needs nobody to start it, and what a launcher does is not in a "
        "profile; use launcher=local",
    ),
    Rule(
        "profile-of-our-step",
        lambda spec, known: spec.profile != "none" and (spec.wrap != "none" or spec.accumulate > 1),
        "profile={profile} with wrap={wrap} accumulate={accumulate}: a profile takes the plain step phase by phase; use "
        "wrap=none and accumulate=1",
    ),
    Rule(
        "profile-has-no-score",
        lambda spec, known: spec.profile != "none" and spec.target is not None,
        "profile={profile} with target={target}: a profile looks into some batches and scores nothing; leave target out",
    ),
    *UPDATE,
    *PRECISION,
    *SHARDING,
    *GRAPH,
    *KERNEL,
    *MESSAGES,
    *START,
)


def check(spec: Spec, known: Known) -> list[str]:
    """Every rule the spec breaks, as sentences; empty when it can be run."""
    topology, host = spec.topology, known.host
    words = {
        **spec.plain(), "machines": topology.machines, "processes": topology.processes, "world_size": topology.world_size,
        "memory_gib": host.memory_bytes / GIB, "torch": host.torch, "cores": host.cores, "usable_gpus": host.usable_gpus,
        "inner": spec.inner, "queue_words": " ".join(queue_words(spec)),
        "step_ways": " or ".join(f"update={way}" for way in step_ways(spec)), "num_linear": len(known.linear or ()),
        "capability": ".".join(map(str, known.capability or ())),
    }  # fmt: skip
    return [f"{rule.why.format_map(words)} (rule: {rule.name})" for rule in RULES if rule.breaks(spec, known)]
