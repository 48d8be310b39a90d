"""What cannot be cut, because a user's task does not recombine from parts of a batch. The probe found out how it does."""

from __future__ import annotations

from typing import Any

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.rules.rule import Known, Rule
from paceline.spec.run import Spec
from paceline.spec.steps import num_steps, steps_per_epoch
from paceline.spec.verdict import Verdict

_UNKNOWN = Verdict(loss="ratio")  # of a built-in task: nothing to refuse


def _verdict(known: Known) -> Verdict:
    return known.verdict or _UNKNOWN


def _over_ranks(spec: Spec) -> bool:
    """Every rank has a part of each batch."""
    return SHARDINGS[spec.sharding].cuts_samples and spec.topology.world_size > 1


def _cut(spec: Spec) -> bool:
    return _over_ranks(spec) or spec.accumulate > 1


def _couples(known: Known) -> bool:
    return _verdict(known).loss == "coupled" and _verdict(known).unknown is None


def _gathers(spec: Spec) -> bool:
    """The step can gather the outputs of all ranks before the loss."""
    ours = spec.wrap == "none" and not spec.is_step_graph and spec.sync_every == 1
    return ours and SHARDINGS[spec.sharding].gathers_outputs


def _state_in_parts(spec: Spec, known: Known) -> bool:
    """State that moves with every call, or with the samples, moves otherwise where a batch is cut."""
    verdict = _verdict(known)
    with_samples = _over_ranks(spec) and verdict.changes_by == "data"
    return bool(verdict.changes) and (spec.accumulate > 1 or with_samples)


def _state_in_a_graph(spec: Spec, known: Known) -> bool:
    graph, verdict = GRAPHS[spec.graph], _verdict(known)
    if graph.is_graph and verdict.seeds:
        return True
    return verdict.changes_python and (spec.is_step_graph or (graph.is_graph and graph.is_exported))


def recombine_words(known: Known) -> dict[str, Any]:
    verdict = _verdict(known)
    return {
        "changes": ", ".join(verdict.changes[:3]),
        "unknown": verdict.unknown,
        "num_train": known.train and known.train.num,
    }


def _syncs(spec: Spec) -> bool:
    """BatchNorm can meet the other ranks in every forward pass."""
    ours = spec.wrap == "none" and not GRAPHS[spec.graph].is_graph and spec.remat == "none" and spec.sync_every == 1
    return ours and SHARDINGS[spec.sharding].synced_norm


def _smallest_part(spec: Spec, num: int) -> int:
    """Samples in the smallest part of any batch that is reached: the last of an epoch may be short."""
    parts = spec.topology.world_size if _over_ranks(spec) and spec.buffers != "sync" else 1
    sizes = [spec.batch] if num >= spec.batch else []
    if num % spec.batch and num_steps(spec, num) >= steps_per_epoch(spec, num):
        sizes.append(num % spec.batch)
    return min(max(1, size // parts // spec.accumulate) for size in sizes)


def _single(spec: Spec, known: Known) -> bool:
    num = known.train.num if known.train is not None else None
    return _verdict(known).needs_two and num is not None and _smallest_part(spec, num) < 2


RECOMBINE: tuple[Rule, ...] = (
    Rule(
        "coupled-loss-in-one-piece",
        lambda spec, known: _couples(known) and spec.accumulate > 1,
        "accumulate={accumulate}: the task's loss couples the samples of a batch (it is not made of the losses of its "
        "parts), and micro-batches are computed one after the other; use accumulate=1, or let loss return "
        "paceline.ratio(sum, count) if it is a mean of that kind",
    ),
    Rule(
        "coupled-loss-of-all-ranks",
        lambda spec, known: _couples(known) and _over_ranks(spec) and not _gathers(spec),
        "on={on}: the task's loss couples the samples of a batch, so ranks gather their outputs before it; our own step "
        "does that, eagerly or with a graph of the model, and not with wrap={wrap} graph={graph} graph_of={graph_of} "
        "sharding={sharding} sync_every={sync_every}; use wrap=none, sharding=none, ddp or fsdp, sync_every=1 and no "
        "graph of the step, or on=1x1",
    ),
    Rule(
        "coupled-loss-of-outputs",
        lambda spec, known: _couples(known) and _over_ranks(spec) and not _verdict(known).rows,
        "on={on}: the task's loss couples the samples of a batch, and it is computed inside the model (in training_step, or by a model "
        "that is given its labels) or from outputs with a single number among them, so there are no outputs that ranks could gather; use "
        "on=1x1, or let forward return one row a sample, and compute the loss in loss(outputs, batch): as paceline.ratio(sum, count) if it "
        "is a mean over tokens; a learned scale belongs into a loss that is a module",
    ),
    Rule(
        "coupled-loss-of-one-shape",
        lambda spec, known: _couples(known) and _over_ranks(spec) and _verdict(known).ragged,
        "on={on}: the task's loss couples the samples of a batch, so ranks gather what it is given; but samples are padded to the longest "
        "of their batch, so ranks have tensors of other shapes; let collate pad all of them to one length, return "
        "paceline.ratio(sum, count) if the loss is a mean over tokens, or use on=1x1",
    ),
    Rule(
        "model-in-one-piece",
        lambda spec, known: _verdict(known).buffers == "together" and _cut(spec),
        "on={on} accumulate={accumulate}: a sample's outputs depend on the samples beside it (the model, or augment, "
        "mixes a batch), so a part of a batch gives other outputs than the whole; use on=1x1 accumulate=1",
    ),
    Rule(
        "evaluation-in-one-piece",
        lambda spec, known: _verdict(known).together_in_evaluation and _over_ranks(spec),
        "on={on}: in evaluation too a sample's outputs depend on the samples beside it, so scores would depend on the "
        "number of ranks; use on=1x1, or normalise with running statistics",
    ),
    Rule(
        "evaluation-leaves-no-trace",
        lambda spec, known: _verdict(known).moves_in_evaluation,
        "in evaluation too, forward or loss changes what it computes with, where it cannot be put back, so scores and training "
        "would depend on how often and in what batches the test set is scored; change it in training only (self.training), or set it "
        "in on_step(step, steps)",
    ),
    Rule(
        "state-moves-once-a-step",
        _state_in_parts,
        "on={on} accumulate={accumulate}: forward or loss changes what it computes with ({changes}), so parts of a batch "
        "would see other values than the whole; use on=1x1 accumulate=1, or set it in on_step(step, steps)",
    ),
    Rule(
        "gradients-in-one-piece",
        lambda spec, known: _verdict(known).bends_gradients and _cut(spec),
        "on={on} accumulate={accumulate}: a hook, or an autograd function of the task, makes gradients that are not proportional to the "
        "loss (clipped ones, signs), so those of parts of a batch do not add up to those of the whole; use on=1x1 accumulate=1, or "
        "clip=... for the norm of all gradients",
    ),
    Rule(
        "whole-weights-for-hooks",
        lambda spec, known: (
            (_verdict(known).hooks or _verdict(known).moves_weights) and not SHARDINGS[spec.sharding].replicates
        ),
        "sharding={sharding}: the model has hooks on gradients of its parameters, or changes parameters in forward, and here other tensors "
        "stand in their place, so that both would be lost; use sharding=none or ddp",
    ),
    Rule(
        "graph-of-what-stays",
        _state_in_a_graph,
        "graph={graph} graph_of={graph_of}: forward or loss changes what it computes with ({changes}), and a graph would "
        "repeat the first value for ever; use graph=eager",
    ),
    Rule(
        "batchnorm-has-two-samples",
        _single,
        "batch={batch} accumulate={accumulate} on={on} with {num_train} training samples: some part of a batch, the last of an epoch "
        "perhaps, has a single sample, and BatchNorm needs two to normalise; choose another batch, accumulate or on",
    ),
    Rule(
        "synced-norm-in-one-piece",
        lambda spec, known: spec.buffers == "sync" and spec.accumulate > 1,
        "buffers=sync accumulate={accumulate}: micro-batches are computed one after the other, so BatchNorm cannot see "
        "the whole batch; use accumulate=1",
    ),
    Rule(
        "synced-norm-of-our-step",
        lambda spec, known: spec.buffers == "sync" and spec.topology.world_size > 1 and not _syncs(spec),
        "buffers=sync on={on} with wrap={wrap} graph={graph} sharding={sharding} remat={remat} sync_every={sync_every}: "
        "ranks meet inside the model, which is done in an eager step with sharding=none or ddp; use those, or buffers=mean",
    ),
    Rule(
        "cut-is-known",
        lambda spec, known: _verdict(known).unknown is not None and _cut(spec),
        "on={on} accumulate={accumulate}: how the task's loss recombines from parts of a batch could not be found out "
        "({unknown}); use on=1x1 accumulate=1, or see that a few samples can be computed on a CPU",
    ),
)
