"""What each way to spread a model over ranks can do. Data only: `worker/sharding/` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingTraits:
    """Defaults are those of a new way: each rank has samples of its own, and nothing else is known to work."""

    name: str
    # what a rank holds and sees
    cuts_samples: bool = True  # a rank sees its own part of a batch; False: every rank sees all of it
    replicates: bool = False  # every rank holds all parameters, in layers that are whole
    has_dtensors: bool = False  # parameters are torch's DTensors, cut over ranks
    cuts_tables: bool = False  # embedding tables, as `table_split` says; the model must have one
    needs_plan: bool = False  # the task must say how its layers are cut
    needs_peers: bool = False  # one process alone would hold all the parts
    # how ranks meet
    waits_as: str | None = (
        None  # what waits for every rank in every step, in words: a rank without a sample would stop the others
    )
    exchanges_activations: bool = False  # in the middle of the model
    lockstep: bool = False  # ranks meet inside the model: each must call it equally often
    # what it works with
    compiled_model: bool = False  # graph=compile graph_of=model
    exported: bool = False  # graph=export
    step_graph: bool = False  # graph_of=step, on one rank or several
    sparse_gradients: bool = False
    fused_kernel: bool = False  # our kernel of convolution, ReLU and pooling
    shared_memory: bool = False  # messages=memory
    local_sgd: bool = False  # sync_every
    gathers_outputs: bool = False  # for a loss that couples the samples of a batch
    synced_norm: bool = False  # buffers=sync
    own_step: bool = False  # a task that makes its own steps
    profiled: bool = False
    takes_wrapper: bool = False  # wrap=accelerate around it
    precision_policy: bool = False  # casts by a policy of its own, so that nothing else may
    # options of its own
    has_buckets: bool = False  # bucket_mb, bucket_view, compress
    reshards: bool = False  # reshard
    library: str | None = None  # what it imports of torch, which takes long


SHARDINGS: Mapping[str, ShardingTraits] = MappingProxyType(
    {
        row.name: row
        for row in (
            ShardingTraits(
                name="none",
                replicates=True,
                compiled_model=True,
                exported=True,
                step_graph=True,
                sparse_gradients=True,
                fused_kernel=True,
                shared_memory=True,
                local_sgd=True,
                own_step=True,
                synced_norm=True,
                gathers_outputs=True,
                profiled=True,
                takes_wrapper=True,
            ),
            ShardingTraits(
                name="ddp",
                replicates=True,
                waits_as="DDP",
                compiled_model=True,
                fused_kernel=True,
                gathers_outputs=True,
                synced_norm=True,
                has_buckets=True,
            ),
            ShardingTraits(
                name="fsdp",
                has_dtensors=True,
                waits_as="FSDP",
                lockstep=True,
                fused_kernel=True,
                gathers_outputs=True,
                precision_policy=True,
                reshards=True,
                library="torch.distributed.fsdp",
            ),
            ShardingTraits(
                name="tensor",
                cuts_samples=False,
                has_dtensors=True,
                needs_plan=True,
                needs_peers=True,
                exchanges_activations=True,
                lockstep=True,
                library="torch.distributed.tensor.parallel",
            ),
            ShardingTraits(
                name="embedding",
                cuts_tables=True,
                needs_peers=True,
                waits_as="a cut table",
                exchanges_activations=True,
                lockstep=True,
                sparse_gradients=True,
            ),
        )
    }
)
