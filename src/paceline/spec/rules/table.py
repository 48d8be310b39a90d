"""All rules in the order their sentences are said, and the check of a spec against them.

Two stages: on the spec and the machine; and, for a user's task or a format that depends on layers, on what a `describe` job found.
"""

from __future__ import annotations

from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.rules.graph import GRAPH, updates_in_graph
from paceline.spec.rules.hooks import HOOKS
from paceline.spec.rules.kernel import KERNEL
from paceline.spec.rules.machine import MACHINE
from paceline.spec.rules.messages import MESSAGES
from paceline.spec.rules.precision import PRECISION
from paceline.spec.rules.profile import PROFILE
from paceline.spec.rules.recombine import RECOMBINE, recombine_words
from paceline.spec.rules.rule import Known, Rule
from paceline.spec.rules.samples import SAMPLES
from paceline.spec.rules.sharding import SHARDING
from paceline.spec.rules.start import START, queue_words
from paceline.spec.rules.update import UPDATE
from paceline.spec.run import Spec
from paceline.spec.tasks import known_task

GIB = 1 << 30

RULES: tuple[Rule, ...] = (
    *MACHINE,
    *SAMPLES,
    *RECOMBINE,
    *HOOKS,
    *PROFILE,
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
    topology, host, task = spec.topology, known.host, known_task(spec.task)
    words = {
        **spec.plain(), "machines": topology.machines, "processes": topology.processes, "world_size": topology.world_size,
        "memory_gib": host.memory_bytes / GIB, "torch": host.torch, "cores": host.cores, "usable_gpus": host.usable_gpus,
        "inner": spec.inner, "queue_words": " ".join(queue_words(spec)), "torch_class": OPTIMIZERS[spec.optimizer].torch_class,
        "updates_in_graph": " or ".join(f"update={way}" for way in updates_in_graph(spec)),
        "num_linear": len(known.linear or ()), "capability": ".".join(map(str, known.capability or ())),
        **recombine_words(known),
        "branches_when": task.branches_when, "cut_into": next(iter(task.cut_by), ""), "cut_by": " and ".join(task.cut_by),
    }  # fmt: skip
    return [f"{rule.why.format_map(words)} (rule: {rule.name})" for rule in RULES if rule.breaks(spec, known)]
