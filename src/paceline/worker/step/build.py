"""From the settings to the executor: the one place that chooses how much of a step is a graph."""

from __future__ import annotations

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.run import Spec
from paceline.worker.step.eager import EagerStep
from paceline.worker.step.executor import Step, StepParts
from paceline.worker.step.own import OwnStep


def build_step(spec: Spec, parts: StepParts) -> Step:
    if parts.task_module.task.step is not None:
        return OwnStep(parts)
    return _with_graph(spec, parts) if GRAPHS[spec.graph].is_graph else EagerStep(parts)


def _with_graph(spec: Spec, parts: StepParts) -> Step:
    """Imports of its own: torch's compiler takes a second, which nobody else should pay."""
    from paceline.worker.measure.compiles import Compiles
    from paceline.worker.step.captured import CapturedStep
    from paceline.worker.step.compiled import CompiledStep
    from paceline.worker.step.model_graph import ModelGraphStep
    from paceline.worker.transform.graph import Compiler

    assert isinstance(spec.threads, int)
    compiles, mode = Compiles(parts.watch), GRAPHS[spec.graph]
    if not mode.needs_compiler:
        return ModelGraphStep(parts, compiles, None) if mode.is_exported else CapturedStep(parts, compiles)
    compiler = Compiler(parts.world.device, threads=spec.threads, kept=spec.graph_cache == "keep")
    compiler.meet_machine()
    return (CompiledStep if spec.is_step_graph else ModelGraphStep)(parts, compiles, compiler)
