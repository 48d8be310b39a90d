"""What cannot be made a graph. A part of the table in `rules.py`, as flat as that. (Recomputation: `rules_sharding.py`.)"""

from __future__ import annotations

from paceline.spec.rule import Rule
from paceline.spec.run import Spec


def is_step(spec: Spec) -> bool:
    """A whole step is one graph."""
    return spec.graph in ("compile", "captured") and spec.graph_of == "step"


def num_ordinary(spec: Spec) -> int:
    """Steps before a step's graph is made."""
    return 3 if spec.graph == "captured" else 1


def step_ways(spec: Spec) -> tuple[str, ...]:
    """The ways to run an update that a step's graph can hold, the best first: the learning rate must be read from a tensor, and not
    by a look at its value, which would be a constant of the graph.

    torch's compiler follows all optimizers in the foreach way; single, its SGD gave other weights without a word (torch 2.13). In a
    CUDA graph only the fused SGD takes a tensor, and where the schedule moves Adam's beta too, only the single Adam.
    """
    if spec.graph == "compile":
        return ("foreach",)
    if spec.optimizer == "sgd":
        return ("fused",)
    if spec.optimizer == "rmsprop":
        return ("foreach",)
    return ("single",) if spec.schedule == "onecycle" else ("foreach", "fused", "single")


GRAPH: tuple[Rule, ...] = (
    Rule(
        "captured-on-a-gpu",
        lambda spec, known: spec.graph == "captured" and spec.device == "cpu",
        "graph=captured on device=cpu: a CUDA graph is a recording of what a GPU is given to do; use graph=compile graph_of=step, or a GPU",
    ),
    Rule(
        "captured-is-a-step",
        lambda spec, known: spec.graph == "captured" and spec.graph_of == "model",
        "graph=captured graph_of=model: a whole step is captured, with its update; leave graph_of out",
    ),
    Rule(
        "step-of-a-graph",
        lambda spec, known: spec.graph_of == "step" and spec.graph in ("eager", "export"),
        "graph_of=step with graph={graph}: only graph=compile and graph=captured make one graph of a whole step; leave graph_of out",
    ),
    Rule(
        "one-graph-has-no-if",
        # Of the built-in tasks this one alone; torch says it of a user's, with the line, when it has looked.
        lambda spec, known: (
            spec.task == "features"
            and spec.params.get("early_exit") is True
            and (spec.graph == "export" or is_step(spec))
        ),
        "early_exit=true with graph={graph} graph_of={graph_of}: the model decides by a number it has just computed how often a layer is "
        "applied, and one graph has no place for that; use graph=eager, or graph=compile graph_of=model, which breaks its graph there",
    ),
    Rule(
        "step-graph-of-replicas",
        lambda spec, known: (
            is_step(spec)
            and spec.topology.world_size > 1
            and (spec.device == "cuda" or spec.sharding != "none" or spec.sync_every > 1)
        ),
        "graph={graph} graph_of=step with on={on} device={device} sharding={sharding} sync_every={sync_every}: on several ranks a step is "
        "a graph only on CPUs, with a whole model on every rank and a message every step; use that, or graph=compile graph_of=model",
    ),
    Rule(
        "graph-of-whole-models",
        lambda spec, known: (
            (spec.graph != "eager" and spec.sharding == "fsdp")
            or (
                spec.sharding == "ddp" and (spec.graph == "export" or (is_step(spec) and spec.topology.world_size == 1))
            )
        ),
        "graph={graph} with sharding={sharding}: what FSDP and DDP do around a model was run here eagerly only, and DDP also around a "
        "compiled model; use sharding=none, or graph=eager",
    ),
    Rule(
        "graph-of-our-step",
        lambda spec, known: spec.graph != "eager" and spec.wrap == "accelerate",
        "graph={graph} with wrap=accelerate: only our own step makes graphs; use wrap=none",
    ),
    Rule(
        "profile-is-eager",
        lambda spec, known: spec.graph != "eager" and spec.profile != "none",
        "profile={profile} with graph={graph}: a profile looks into a model operator by operator, and a graph has none; use graph=eager",
    ),
    Rule(
        "step-graph-in-one-piece",
        lambda spec, known: is_step(spec) and spec.accumulate > 1,
        "accumulate={accumulate} with graph={graph} graph_of=step: one graph is one micro-batch and one update; use accumulate=1, or "
        "graph=compile graph_of=model",
    ),
    Rule(
        "step-graph-looks-at-nothing",
        lambda spec, known: (
            is_step(spec) and (spec.precision == "fp16" or (spec.precision == "fp8" and spec.graph == "compile"))
        ),
        "precision={precision} with graph={graph} graph_of=step: fp16 looks at every gradient before it decides about the update, which "
        "a graph cannot, and fp8 was never run in one; use bf16 or fp32, or graph=compile graph_of=model",
    ),
    Rule(
        "step-graph-reads-its-rate",
        lambda spec, known: is_step(spec) and spec.update not in step_ways(spec),
        "update={update} with optimizer={optimizer} schedule={schedule} in graph={graph} graph_of=step: run in that way, torch's update "
        "makes the learning rate (or Adam's beta) a constant of the graph; use {step_ways}, or leave update out",
    ),
    Rule(
        "step-graph-has-steps",
        lambda spec, known: is_step(spec) and spec.steps is not None and spec.steps <= num_ordinary(spec),
        "steps={steps} with graph={graph} graph_of=step: the first step is an ordinary one (before a capture the first three are), so no "
        "step would go through the graph; use more steps, or graph=eager",
    ),
    Rule(
        "export-has-samples",
        lambda spec, known: spec.graph == "export" and spec.batch // (spec.topology.world_size * spec.accumulate) < 2,
        "graph=export with batch={batch} on {world_size} ranks and accumulate={accumulate}: an exported graph takes two samples or more "
        "at a time, and a single one goes to the plain model; use a larger batch, or graph=eager",
    ),
)
