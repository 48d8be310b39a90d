"""From the settings to the executor: the one place that chooses how much of a step is a graph."""

from __future__ import annotations

from paceline.spec.run import Spec
from paceline.worker.step.eager import EagerStep
from paceline.worker.step.executor import Step, StepParts


def build_step(spec: Spec, parts: StepParts) -> Step:
    return EagerStep(parts) if spec.graph == "eager" else _with_graph(spec, parts)


def _with_graph(spec: Spec, parts: StepParts) -> Step:
    """Imports of its own: torch's compiler takes a second, which nobody else should pay."""
    from paceline.worker.measure.compiles import Compiles
    from paceline.worker.step.captured import CapturedStep
    from paceline.worker.step.compiled import CompiledStep
    from paceline.worker.step.model_graph import ModelGraphStep
    from paceline.worker.transform.graph import Compiler

    assert isinstance(spec.threads, int)
    compiles = Compiles(parts.watch)
    if spec.graph == "captured":
        return CapturedStep(parts, compiles)
    if spec.graph == "export":
        return ModelGraphStep(parts, compiles, None)
    compiler = Compiler(parts.world.device, threads=spec.threads, kept=spec.graph_cache == "keep")
    compiler.meet_machine()
    return (CompiledStep if spec.graph_of == "step" else ModelGraphStep)(parts, compiles, compiler)
