"""What cannot be made a graph. Whether a task's own code can be one, torch reports when it traces it."""

from __future__ import annotations

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.rules.rule import Rule
from paceline.spec.run import Spec
from paceline.spec.tasks import known_task


def updates_in_graph(spec: Spec) -> tuple[str, ...]:
    """The values of `update` that are true of a step's graph, the best first.

    A compiled step has formulas of its own, which work on all tensors at once: that is foreach. A recorded step has torch's functions,
    and they must read the learning rate, and a beta that the schedule moves, from a tensor: a number would be a constant of the graph.
    """
    if GRAPHS[spec.graph].own_formulas:
        return ("foreach",)
    optimizer = OPTIMIZERS[spec.optimizer]
    return optimizer.captured_moving_beta if spec.moves_beta else optimizer.captured_updates


def _never_tried(spec: Spec) -> bool:
    """A graph of a model that is wrapped or cut in this way."""
    way, graph = SHARDINGS[spec.sharding], GRAPHS[spec.graph]
    alone = spec.topology.world_size == 1  # of several ranks another rule speaks
    return (
        (graph.is_graph and not way.compiled_model)
        or (graph.is_exported and not way.exported)
        or (spec.is_step_graph and not way.step_graph and alone)
    )


GRAPH: tuple[Rule, ...] = (
    Rule(
        "captured-on-a-gpu",
        lambda spec, known: GRAPHS[spec.graph].needs_cuda and spec.device == "cpu",
        "graph=captured on device=cpu: a CUDA graph is a recording of what a GPU is given to do; use graph=compile graph_of=step, or a GPU",
    ),
    Rule(
        "captured-is-a-step",
        lambda spec, known: (
            GRAPHS[spec.graph].is_graph and not GRAPHS[spec.graph].of_model and spec.graph_of == "model"
        ),
        "graph=captured graph_of=model: a whole step is captured, with its update; leave graph_of out",
    ),
    Rule(
        "step-of-a-graph",
        lambda spec, known: spec.graph_of == "step" and not GRAPHS[spec.graph].of_step,
        "graph_of=step with graph={graph}: only graph=compile and graph=captured make one graph of a whole step; leave graph_of out",
    ),
    Rule(
        "one-graph-has-no-if",
        # Of a built-in task it is known; torch says it of a user's, with the line, when it has looked.
        lambda spec, known: (
            known_task(spec.task).branches(spec.params) and (GRAPHS[spec.graph].is_exported or spec.is_step_graph)
        ),
        "{branches_when}=true with graph={graph} graph_of={graph_of}: the model decides by a number it has just computed how often a "
        "layer is applied, and one graph has no place for that; use graph=eager, or graph=compile graph_of=model, which breaks its "
        "graph there",
    ),
    Rule(
        "step-graph-of-replicas",
        lambda spec, known: (
            spec.is_step_graph
            and spec.topology.world_size > 1
            and (spec.device == "cuda" or not SHARDINGS[spec.sharding].step_graph or spec.sync_every > 1)
        ),
        "graph={graph} graph_of=step with on={on} device={device} sharding={sharding} sync_every={sync_every}: on several ranks a step is "
        "a graph only on CPUs, with a whole model on every rank and a message every step; use that, or graph=compile graph_of=model",
    ),
    Rule(
        "graph-of-whole-models",
        lambda spec, known: not SHARDINGS[spec.sharding].exchanges_activations and _never_tried(spec),
        "graph={graph} with sharding={sharding}: what FSDP and DDP do around a model was run here eagerly only, and DDP also around a "
        "compiled model; use sharding=none, or graph=eager",
    ),
    Rule(
        "graph-of-our-step",
        lambda spec, known: GRAPHS[spec.graph].is_graph and spec.wrap == "accelerate",
        "graph={graph} with wrap=accelerate: only our own step makes graphs; use wrap=none",
    ),
    Rule(
        "profile-is-eager",
        lambda spec, known: GRAPHS[spec.graph].is_graph and spec.profile != "none",
        "profile={profile} with graph={graph}: a profile looks into a model operator by operator, and a graph has none; use graph=eager",
    ),
    Rule(
        "step-graph-in-one-piece",
        lambda spec, known: spec.is_step_graph and spec.accumulate > 1,
        "accumulate={accumulate} with graph={graph} graph_of=step: one graph is one micro-batch and one update; use accumulate=1, or "
        "graph=compile graph_of=model",
    ),
    Rule(
        "step-graph-looks-at-nothing",
        lambda spec, known: (
            spec.is_step_graph
            and (spec.precision == "fp16" or (spec.precision == "fp8" and GRAPHS[spec.graph].takes_fp8))
        ),
        "precision={precision} with graph={graph} graph_of=step: fp16 looks at every gradient before it decides about the update, which "
        "a graph cannot, and fp8 was never run in one; use bf16 or fp32, or graph=compile graph_of=model",
    ),
    Rule(
        "step-graph-reads-its-rate",
        lambda spec, known: (
            spec.is_step_graph and not GRAPHS[spec.graph].own_formulas and spec.update not in updates_in_graph(spec)
        ),
        "update={update} with optimizer={optimizer} schedule={schedule} in graph={graph} graph_of=step: run in that way, torch's update "
        "makes the learning rate (or Adam's beta) a constant of the graph; use {updates_in_graph}, or leave update out",
    ),
    Rule(
        "step-graph-has-its-formulas",
        lambda spec, known: (
            spec.is_step_graph and GRAPHS[spec.graph].own_formulas and spec.update not in updates_in_graph(spec)
        ),
        "update={update} in graph={graph} graph_of=step: the compiled step updates all tensors at once, by formulas of its own, so torch's "
        "update={update} would be that of the few ordinary steps only; use {updates_in_graph}, or leave update out",
    ),
    Rule(
        "step-graph-has-steps",
        lambda spec, known: (
            spec.is_step_graph and spec.steps is not None and spec.steps <= GRAPHS[spec.graph].ordinary_steps
        ),
        "steps={steps} with graph={graph} graph_of=step: the first step is an ordinary one (before a capture the first three are), so no "
        "step would go through the graph; use more steps, or graph=eager",
    ),
    Rule(
        "stop-after-a-graph",
        lambda spec, known: (
            spec.is_step_graph
            and spec.stop_at is not None
            and spec.evaluate_every is not None
            and spec.evaluate_every <= GRAPHS[spec.graph].ordinary_steps
        ),
        "stop_at={stop_at} with evaluate_every={evaluate_every} and graph={graph} graph_of=step: the run could end before a step went "
        "through the graph; use a larger evaluate_every, or graph=eager",
    ),
    Rule(
        "export-has-samples",
        lambda spec, known: (
            GRAPHS[spec.graph].is_exported and spec.batch // (spec.topology.world_size * spec.accumulate) < 2
        ),
        "graph=export with batch={batch} on {world_size} ranks and accumulate={accumulate}: an exported graph takes two samples or more "
        "at a time, and a single one goes to the plain model; use a larger batch, or graph=eager",
    ),
)
