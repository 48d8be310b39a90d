"""What cannot be spread over ranks, or not in that way."""

from __future__ import annotations

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.rules.rule import Known, Rule
from paceline.spec.run import Spec
from paceline.spec.tasks import known_task

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Measured with torch 2.13 over gloo: a rank of one thread needs about 30 MB for the stacks of its threads and its messages.
LEAST_CAP = 32 << 20


def nbytes(word: str) -> int:
    """
    >>> nbytes("600M"), nbytes("2G") == 2 * nbytes("1024M")
    (629145600, True)
    """
    return int(word.rstrip("KMGT")) * _UNITS[word.lstrip("0123456789")]


def sparse(spec: Spec, known: Known) -> bool:
    """Whether gradients are known to be sparse: a user's task was looked at; of a built-in one it is a parameter."""
    return bool(known.sparse) or known_task(spec.task).has_sparse(spec.params)


def _uneven(spec: Spec) -> bool:
    """A built-in task's layers cannot be cut into equal pieces; a user's task says so itself, when its plan is applied."""
    return any(size % spec.topology.world_size != 0 for size in known_task(spec.task).cut_sizes(spec.params))


SHARDING: tuple[Rule, ...] = (
    Rule(
        "one-wrapper",
        lambda spec, known: not SHARDINGS[spec.sharding].takes_wrapper and spec.wrap == "accelerate",
        "sharding={sharding} with wrap=accelerate: two would spread one model; use wrap=none, or sharding=none",
    ),
    Rule(
        "ddp-has-options",
        lambda spec, known: (
            not SHARDINGS[spec.sharding].has_buckets
            and (spec.bucket_mb is not None or spec.bucket_view or spec.compress != "none")
        ),
        "bucket_mb={bucket_mb} bucket_view={bucket_view} compress={compress} with sharding={sharding}: these are options of torch's "
        "DDP; use sharding=ddp, or leave them out",
    ),
    Rule(
        "compress-has-a-listener",
        lambda spec, known: (
            spec.compress != "none" and SHARDINGS[spec.sharding].has_buckets and spec.topology.world_size == 1
        ),
        "compress={compress} with on={on}: one process sends nothing; use more processes, or leave it out",
    ),
    Rule(
        "compress-makes-smaller",
        lambda spec, known: (
            spec.compress != "none" and SHARDINGS[spec.sharding].has_buckets and spec.precision == "bf16-pure"
        ),
        "compress={compress} with precision=bf16-pure: gradients have 16 bits already; leave compress out",
    ),
    Rule(
        "reshard-of-fsdp",
        lambda spec, known: not spec.reshard and not SHARDINGS[spec.sharding].reshards,
        "reshard=false with sharding={sharding}: only sharding=fsdp fetches parameters and gives them back; leave it out",
    ),
    Rule(
        "fused-takes-whole-tensors",
        lambda spec, known: (
            spec.update == "fused"
            and not OPTIMIZERS[spec.optimizer].fused_takes_dtensors
            and SHARDINGS[spec.sharding].has_dtensors
        ),
        "update=fused with optimizer={optimizer} and sharding={sharding}: torch's fused {optimizer} cannot update parameters "
        "that are cut over ranks; use update=foreach or single",
    ),
    Rule(
        "sync-every-of-copies",
        lambda spec, known: spec.sync_every > 1 and (not SHARDINGS[spec.sharding].local_sgd or spec.wrap != "none"),
        "sync_every={sync_every} with sharding={sharding} wrap={wrap}: ranks that update alone need whole models of their own and "
        "nobody who sends gradients; use sharding=none wrap=none, or sync_every=1",
    ),
    Rule(
        "sync-every-has-others",
        lambda spec, known: (
            spec.sync_every > 1
            and SHARDINGS[spec.sharding].local_sgd
            and spec.wrap == "none"
            and spec.topology.world_size == 1
        ),
        "sync_every={sync_every} with on={on}: one process has nobody to average with; use more processes, or leave it out",
    ),
    Rule(
        "sync-every-comes",
        lambda spec, known: spec.steps is not None and spec.steps < spec.sync_every,
        "sync_every={sync_every} with steps={steps}: the run would end before the first averaging; use sync_every={steps} or less",
    ),
    Rule(
        "profile-of-a-whole-model",
        lambda spec, known: spec.profile != "none" and not SHARDINGS[spec.sharding].profiled,
        "profile={profile} with sharding={sharding}: a profile looks into one process with the whole model; use sharding=none",
    ),
    Rule(
        "remat-is-eager",
        lambda spec, known: spec.remat != "none" and GRAPHS[spec.graph].is_graph,
        "remat={remat} with graph={graph}: a compiler decides for itself what it keeps and what it computes again, and a captured or "
        "exported graph cannot go back; use graph=eager, or remat=none",
    ),
    Rule(
        "table-split-of-tables",
        lambda spec, known: spec.table_split != "rows" and not SHARDINGS[spec.sharding].cuts_tables,
        "table_split={table_split} with sharding={sharding}: it says how sharding=embedding cuts tables; use that, or leave it out",
    ),
    Rule(
        "cut-over-several",
        lambda spec, known: SHARDINGS[spec.sharding].needs_peers and spec.topology.world_size == 1,
        "sharding={sharding} with on={on}: one process would hold all the parts; use more processes, or sharding=none",
    ),
    Rule(
        "cut-is-eager",
        lambda spec, known: (
            GRAPHS[spec.graph].is_graph
            and SHARDINGS[spec.sharding].exchanges_activations
            and not SHARDINGS[spec.sharding].compiled_model
        ),
        "sharding={sharding} with graph={graph}: in this version ranks that meet inside the model run it eagerly; use graph=eager, or "
        "another sharding",
    ),
    Rule(
        "tensor-has-a-plan",
        lambda spec, known: SHARDINGS[spec.sharding].needs_plan and known.tensor_plan is False,
        "sharding=tensor, but the task does not say how its layers are cut: define tensor_plan(model), which returns the style of each "
        "layer (docs/sharding.md has an example), or use another sharding",
    ),
    Rule(
        "tensor-cuts-heads",
        lambda spec, known: SHARDINGS[spec.sharding].needs_plan and _uneven(spec),
        "sharding={sharding} with on={on}: the {task} is cut by whole {cut_into}, and {world_size} ranks cannot have equally many of its "
        "{cut_into}: choose {cut_by} that are multiples of {world_size}",
    ),
    Rule(
        "embedding-has-tables",
        lambda spec, known: SHARDINGS[spec.sharding].cuts_tables and known.tables is False,
        "sharding=embedding, but the model has no nn.Embedding to cut: use another sharding",
    ),
    Rule(
        "sparse-goes-our-way",
        lambda spec, known: (
            sparse(spec, known)
            and (not SHARDINGS[spec.sharding].sparse_gradients or spec.wrap != "none" or GRAPHS[spec.graph].is_graph)
        ),
        "sparse gradients with sharding={sharding} wrap={wrap} graph={graph}: only our own messages and eager steps carry them; use "
        "sharding=none or embedding, wrap=none and graph=eager, or tables with sparse=False",
    ),
    Rule(
        "sparse-has-an-optimizer",
        lambda spec, known: sparse(spec, known) and OPTIMIZERS[spec.optimizer].sparse_class is None,
        "optimizer={optimizer} with sparse gradients: torch has it for dense gradients only; use sgd or adam, or tables with "
        "sparse=False",
    ),
    Rule(
        "sparse-leaves-rows-alone",
        lambda spec, known: (
            sparse(spec, known)
            and OPTIMIZERS[spec.optimizer].sparse_class is not None
            and (
                spec.weight_decay != 0
                or (OPTIMIZERS[spec.optimizer].takes_momentum and spec.momentum > 0)
                or (not OPTIMIZERS[spec.optimizer].fused_takes_sparse and spec.update == "fused")
            )
        ),
        "weight_decay={weight_decay} momentum={momentum} update={update} with sparse gradients: decay and momentum would move every row "
        "in every step, and torch's fused sgd takes dense gradients only; leave them out, or use tables with sparse=False",
    ),
    Rule(
        "memory-cap-has-room",
        lambda spec, known: spec.memory_cap is not None and nbytes(spec.memory_cap) < LEAST_CAP,
        "memory_cap={memory_cap}: the threads and messages of a rank take about 30 MB before it has any data; use 32M or more",
    ),
)
