"""What cannot be asked where a task takes a part of the work into its own hands: its own steps, and values it sets by the step's number."""

from __future__ import annotations

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.rules.rule import Known, Rule
from paceline.spec.run import Spec

_MIXED = ("fp16", "bf16", "fp8")


def _not_eager(spec: Spec) -> bool:
    plain = spec.wrap == "none" and spec.remat == "none" and spec.kernel == "torch" and spec.profile == "none"
    return GRAPHS[spec.graph].is_graph or not plain


def _graph_of_numbers(spec: Spec) -> bool:
    graph = GRAPHS[spec.graph]
    return spec.is_step_graph or (graph.is_graph and graph.is_exported)


def _recombines(known: Known) -> bool:
    return known.verdict is None or known.verdict.loss != "coupled" or known.verdict.unknown is not None


HOOKS: tuple[Rule, ...] = (
    Rule(
        "own-step-is-eager",
        lambda spec, known: known.own_step is True and _not_eager(spec),
        "graph={graph} wrap={wrap} remat={remat} kernel={kernel} profile={profile}: the task makes its own steps, which are run as they "
        "are written; use graph=eager wrap=none remat=none kernel=torch and no profile",
    ),
    Rule(
        "own-step-of-whole-models",
        lambda spec, known: known.own_step is True and (not SHARDINGS[spec.sharding].own_step or spec.sync_every > 1),
        "sharding={sharding} sync_every={sync_every}: the task makes its own steps, and ranks meet just before each of its updates; use "
        "sharding=none sync_every=1",
    ),
    Rule(
        "own-step-in-one-piece",
        lambda spec, known: known.own_step is True and spec.accumulate > 1,
        "accumulate={accumulate}: the task makes its own steps, each with several updates, so a batch cannot be cut into micro-batches; "
        "use accumulate=1",
    ),
    Rule(
        "own-step-updates-itself",
        lambda spec, known: known.own_step is True and (spec.clip is not None or spec.precision in _MIXED),
        "clip={clip} precision={precision}: the task makes its own backward passes and updates; clip gradients or cast inside of "
        "step(model, batch, optimizers), and leave clip out, with precision=fp32",
    ),
    Rule(
        "own-step-recombines",
        lambda spec, known: known.own_step is True and not _recombines(known) and spec.topology.world_size > 1,
        "on={on}: the gradients of the task's own step do not recombine from parts of a batch (they are neither a mean nor a sum over its "
        "samples), so ranks would make another update than one process; use on=1x1, or losses that are means over samples",
    ),
    Rule(
        "data-by-number-in-the-rank",
        lambda spec, known: known.verdict is not None and known.verdict.moves_data and spec.workers > 0,
        "workers={workers}: the task's on_step or on_epoch changes what its data set gives, and loader processes have copies of it that "
        "this does not reach; use workers=0, or change samples in augment(batch, keys)",
    ),
    Rule(
        "by-number-outside-of-graphs",
        lambda spec, known: known.sets_by_step is True and _graph_of_numbers(spec),
        "graph={graph} graph_of={graph_of}: the task sets values in on_step or on_epoch, and a graph would keep the first of them for "
        "ever; use graph=eager, or graph=compile graph_of=model",
    ),
)
