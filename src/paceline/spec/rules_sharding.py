"""What cannot be spread over ranks, or not in that way. A part of the table in `rules.py`, as flat as that."""

from __future__ import annotations

from paceline.spec.rule import Rule

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
)
