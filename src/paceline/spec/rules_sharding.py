"""What cannot be spread over ranks, or not in that way. A part of the table in `rules.py`, as flat as that."""

from __future__ import annotations

from paceline.spec.rule import Known, Rule
from paceline.spec.run import Spec
from paceline.spec.tasks import BUILTIN

_CUT = ("tensor", "embedding")  # ranks meet in the middle of the model
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
    return bool(known.sparse or (spec.task in BUILTIN and spec.params.get("sparse") is True))


SHARDING: tuple[Rule, ...] = (
    Rule(
        "one-wrapper",
        lambda spec, known: spec.sharding != "none" and spec.wrap == "accelerate",
        "sharding={sharding} with wrap=accelerate: two would spread one model; use wrap=none, or sharding=none",
    ),
    Rule(
        "ddp-has-options",
        lambda spec, known: (
            spec.sharding != "ddp" and (spec.bucket_mb is not None or spec.bucket_view or spec.compress != "none")
        ),
        "bucket_mb={bucket_mb} bucket_view={bucket_view} compress={compress} with sharding={sharding}: these are options of torch's "
        "DDP; use sharding=ddp, or leave them out",
    ),
    Rule(
        "compress-has-a-listener",
        lambda spec, known: spec.compress != "none" and spec.sharding == "ddp" and spec.topology.world_size == 1,
        "compress={compress} with on={on}: one process sends nothing; use more processes, or leave it out",
    ),
    Rule(
        "compress-makes-smaller",
        lambda spec, known: spec.compress != "none" and spec.sharding == "ddp" and spec.precision == "bf16-pure",
        "compress={compress} with precision=bf16-pure: gradients have 16 bits already; leave compress out",
    ),
    Rule(
        "reshard-of-fsdp",
        lambda spec, known: not spec.reshard and spec.sharding != "fsdp",
        "reshard=false with sharding={sharding}: only sharding=fsdp fetches parameters and gives them back; leave it out",
    ),
    Rule(
        "fused-takes-whole-tensors",
        lambda spec, known: spec.update == "fused" and spec.optimizer == "sgd" and spec.sharding in ("fsdp", "tensor"),
        "update=fused with optimizer=sgd and sharding={sharding}: torch's fused sgd cannot update parameters that are cut over ranks; "
        "use update=foreach or single",
    ),
    Rule(
        "sync-every-of-copies",
        lambda spec, known: spec.sync_every > 1 and (spec.sharding != "none" or spec.wrap != "none"),
        "sync_every={sync_every} with sharding={sharding} wrap={wrap}: ranks that update alone need whole models of their own and "
        "nobody who sends gradients; use sharding=none wrap=none, or sync_every=1",
    ),
    Rule(
        "sync-every-has-others",
        lambda spec, known: (
            spec.sync_every > 1 and spec.sharding == spec.wrap == "none" and spec.topology.world_size == 1
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
        lambda spec, known: spec.profile != "none" and spec.sharding != "none",
        "profile={profile} with sharding={sharding}: a profile looks into one process with the whole model; use sharding=none",
    ),
    Rule(
        "remat-is-eager",
        lambda spec, known: spec.remat != "none" and spec.graph != "eager",
        "remat={remat} with graph={graph}: a compiler decides for itself what it keeps and what it computes again, and a captured or "
        "exported graph cannot go back; use graph=eager, or remat=none",
    ),
    Rule(
        "table-split-of-tables",
        lambda spec, known: spec.table_split != "rows" and spec.sharding != "embedding",
        "table_split={table_split} with sharding={sharding}: it says how sharding=embedding cuts tables; use that, or leave it out",
    ),
    Rule(
        "cut-over-several",
        lambda spec, known: spec.sharding in _CUT and spec.topology.world_size == 1,
        "sharding={sharding} with on={on}: one process would hold all the parts; use more processes, or sharding=none",
    ),
    Rule(
        "cut-is-eager",
        lambda spec, known: spec.sharding in _CUT and spec.graph != "eager",
        "sharding={sharding} with graph={graph}: in this version ranks that meet inside the model run it eagerly; use graph=eager, or "
        "another sharding",
    ),
    Rule(
        "tensor-has-a-plan",
        lambda spec, known: spec.sharding == "tensor" and known.tensor_plan is False,
        "sharding=tensor, but the task does not say how its layers are cut: define tensor_plan(model), which returns the style of each "
        "layer (docs/sharding.md has an example), or use another sharding",
    ),
    Rule(
        "tensor-cuts-heads",
        lambda spec, known: (
            spec.sharding == "tensor"
            and spec.task == "transformer"
            and int(spec.params.get("heads") or 4) % spec.topology.world_size != 0
        ),
        "sharding=tensor with on={on}: the transformer is cut by whole heads, and {world_size} ranks cannot have equally many of its "
        "heads: choose heads and width that are multiples of {world_size}",
    ),
    Rule(
        "embedding-has-tables",
        lambda spec, known: spec.sharding == "embedding" and known.tables is False,
        "sharding=embedding, but the model has no nn.Embedding to cut: use another sharding",
    ),
    Rule(
        "sparse-goes-our-way",
        lambda spec, known: (
            sparse(spec, known)
            and (spec.sharding not in ("none", "embedding") or spec.wrap != "none" or spec.graph != "eager")
        ),
        "sparse gradients with sharding={sharding} wrap={wrap} graph={graph}: only our own messages and eager steps carry them; use "
        "sharding=none or embedding, wrap=none and graph=eager, or tables with sparse=False",
    ),
    Rule(
        "sparse-has-an-optimizer",
        lambda spec, known: sparse(spec, known) and spec.optimizer not in ("sgd", "adam"),
        "optimizer={optimizer} with sparse gradients: torch has it for dense gradients only; use sgd or adam, or tables with "
        "sparse=False",
    ),
    Rule(
        "sparse-leaves-rows-alone",
        lambda spec, known: (
            sparse(spec, known)
            and spec.optimizer in ("sgd", "adam")
            and (spec.weight_decay != 0 or (spec.optimizer == "sgd" and (spec.momentum > 0 or spec.update == "fused")))
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
