"""Every setting: its type, default and one line of explanation, in small frozen classes by topic. Values only; they are applied elsewhere.

To add one: `docs/how-to/add-a-setting.md`. The names of an axis that has a table (launcher, sharding, optimizer, graph) are the table's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.axes.schedules import SCHEDULES
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.ending import Ending
from paceline.spec.topology import Topology, parse
from paceline.spec.values import (
    Auto,
    Count,
    Duration,
    Frozen,
    Memory,
    NotNegative,
    OneOf,
    OnTopology,
    Positive,
    PositiveDuration,
    Real,
    Word,
)  # fmt: skip


class Process(Frozen):
    """Which processes exist and how they find each other."""

    on: OnTopology = Field("1x1", description="machines x processes per machine")
    launcher: Annotated[str, OneOf(LAUNCHERS)] = Field(
        "local", description="what starts the processes; `paceline list launchers` explains each"
    )
    backend: Literal["gloo", "mpi", "nccl"] = Field("gloo", description="what carries the messages between ranks")
    rendezvous: Literal["static", "c10d"] = Field(
        "static", description="how torchrun and accelerate find the machines: numbered from 0, or as they come (c10d)"
    )
    head: Word | None = Field(
        None,
        description="name or address of the first machine, where the others meet it; in Slurm: the first of the job",
    )
    port: Annotated[int, Field(ge=1024, le=65535)] | None = Field(
        None, description="port they meet at; unset: 29500, and in Slurm one made of the job's number"
    )
    machine: Annotated[int, Field(ge=0)] | None = Field(
        None, description="which machine this is (0 is the head), where you start the same command on each by hand"
    )
    meet_within: PositiveDuration = Field(
        15, description="longest time for the machines of a started run to find and check each other"
    )
    device: Literal["cpu", "cuda", "auto"] = Field(
        "auto", description="where the model lives; auto: cuda where there is a GPU for every process, else cpu"
    )
    threads: Count | Auto = Field("auto", description="CPU threads of each rank; auto: cores / processes, at least 1")
    pin: Literal["none", "cores"] = Field(
        "none",
        description="cores: each rank keeps to as many cores as it has threads, no two to the same; none: wherever the system puts it",
    )
    messages: Literal["auto", "backend", "memory"] = Field(
        "auto",
        description="what carries gradients between ranks of one machine: the backend, or memory that they share; auto: memory where "
        "that is possible and no backend was named",
    )
    memory_cap: Memory | None = Field(
        None,
        description="most memory a rank may take for data, model and steps (600M, 2G), on top of what its libraries hold; unset: no cap",
    )
    timeout: Duration = Field(
        0, description="longest wall time of the run (90, 20m, 2h); 0: no limit (a study gives each run 1h)"
    )

    @property
    def topology(self) -> Topology:
        return parse(self.on)

    @property
    def in_queue(self) -> bool:
        """Slurm starts it, on machines that are not this one."""
        return LAUNCHERS[self.launcher].in_queue

    @property
    def inner(self) -> str:
        """What starts the ranks on the machines: `slurm+torchrun` is torchrun."""
        return LAUNCHERS[self.launcher].inner


class Queue(Frozen):
    """What a Slurm job asks for; nodes and tasks come from `on`. Read by launchers whose name begins with slurm."""

    partition: Word | None = Field(None, description="Slurm partition; unset: the cluster's default")
    mem: Memory | None = Field(
        None, description="memory per machine for Slurm (1000M, 2G); unset: the cluster's default"
    )
    time: PositiveDuration | None = Field(
        None, description="Slurm time limit of the job (90, 20m, 2h); unset: the partition's"
    )
    account: Word | None = Field(None, description="Slurm account that pays")
    qos: Word | None = Field(None, description="Slurm quality of service")
    constraint: Word | None = Field(None, description="Slurm feature the machines must have")
    gres: Word | None = Field(None, description="Slurm generic resources per machine (gpu:2)")
    cpus_per_task: Count | Auto = Field("auto", description="Slurm CPUs of each rank; auto: as many as threads")
    activate: str | None = Field(
        None, description="file the Slurm job sources before anything else; its `python` then runs the ranks"
    )
    sbatch: str | None = Field(None, description="more #SBATCH options, as they are typed (--exclusive --nice=10)")
    pack: bool = Field(False, description="a study's runs one after the other inside one Slurm job")
    max_jobs: Count = Field(1, description="most Slurm jobs of a study in the queue at a time")


class Batching(Frozen):
    """Which samples a step sees."""

    data: str | None = Field(None, description="folder the task reads its data from; unset: what ships with the task")
    batch: Count = Field(32, description="samples per step over all ranks together (the global batch)")
    batch_per_rank: Count | None = Field(
        None,
        description="samples each rank computes at once, instead of batch: the global batch is then ranks x batch_per_rank x accumulate",
    )
    accumulate: Count = Field(
        1,
        description="micro-batches a rank's share of a step is cut into; their gradients are summed before one update. It cuts batch, and "
        "multiplies batch_per_rank",
    )
    test_batch: Count = Field(
        128, description="samples per rank in one evaluation batch; changes speed, not which samples are scored"
    )
    shuffle: bool = Field(
        True,
        description="a new sample order every epoch, the same at every world size; false where the training data is a stream",
    )
    workers: Annotated[int, Field(ge=0)] = Field(
        0,
        description="loader processes per rank for each of the two data sets, if it is a map-style Dataset; 0: load in the rank itself",
    )


class Optim(Frozen):
    """How a gradient becomes an update."""

    optimizer: Annotated[str, OneOf(OPTIMIZERS)] = Field("adam", description="update rule")
    update: Literal["auto", "single", "foreach", "fused"] = Field(
        "auto",
        description="torch's way to run the update: tensor by tensor, all at once, or one kernel; auto: foreach on a GPU, else "
        "single; in a step's graph the one that it has",
    )
    lr: Positive = Field(
        1e-3, description="learning rate: of the first epoch, or the highest of a schedule that has one"
    )
    lr_scale: Literal["none", "linear", "sqrt"] = Field(
        "none", description="multiply lr by batch / lr_batch, or its root: only when asked"
    )
    lr_batch: Count = Field(32, description="the batch that lr was meant for, where lr_scale is used")
    schedule: Annotated[str, OneOf(SCHEDULES)] = Field(
        "constant",
        description="how lr changes: by epochs (step, exponential), by steps (cosine to 0, onecycle), or as the task's own "
        "schedule(step, steps) says (task)",
    )
    schedule_factor: Annotated[Real, Field(gt=0, le=1)] = Field(
        0.1, description="what step and exponential multiply lr with"
    )
    schedule_every: Count = Field(1, description="epochs between two multiplications of schedule=step")
    warmup: Annotated[int, Field(ge=0)] = Field(0, description="first steps in which lr rises linearly to its value")
    lr_decay: NotNegative = Field(0.0, description="learning rate in epoch e (from 0): lr / (1 + lr_decay * e)")
    weight_decay: NotNegative | Auto = Field(
        "auto", description="weight decay; auto: 0.01 for adamw, as torch has it, and 0 for the others"
    )
    momentum: Annotated[Real, Field(ge=0, lt=1)] = Field(0.0, description="momentum of sgd and rmsprop")
    nesterov: bool = Field(False, description="Nesterov's momentum, with sgd")
    clip: Positive | None = Field(
        None,
        description="longest gradient (norm over all parameters); a longer one is shortened to it before the update",
    )

    @property
    def moves_beta(self) -> bool:
        """The schedule moves Adam's first beta too."""
        return SCHEDULES[self.schedule].moves_beta and OPTIMIZERS[self.optimizer].has_betas


class Distributed(Frozen):
    """What each rank holds of the model, and how the ranks stay one model."""

    sharding: Annotated[str, OneOf(SHARDINGS)] = Field(
        "none",
        description="none: whole model on every rank, our one message a step; ddp: the same by torch's DDP; fsdp: parameters, "
        "gradients and optimizer state cut over ranks; tensor: layers cut, every rank sees every sample; embedding: tables cut",
    )
    bucket_mb: Positive | None = Field(
        None, description="megabytes of gradients DDP sends at a time; unset: torch's 25"
    )
    bucket_view: bool = Field(False, description="DDP's gradients live in its buckets: one copy less")
    compress: Literal["none", "fp16", "bf16"] = Field("none", description="format in which DDP sends gradients")
    reshard: bool = Field(
        True, description="FSDP gives parameters back after the forward pass and fetches them again for the backward"
    )
    table_split: Literal["rows", "columns"] = Field("rows", description="how sharding=embedding cuts a table")
    sync_every: Count = Field(
        1,
        description="steps each rank updates alone before parameters are averaged (local SGD); 1: gradients, every step",
    )


class Loop(Frozen):
    """How long, how exact, and what is written down."""

    epochs: Count | None = Field(3, description="passes over the training data")
    steps: Count | None = Field(None, description="optimisation steps in all, instead of epochs")
    precision: Literal["fp32", "fp64", "tf32", "fp16", "bf16", "bf16-pure", "fp8"] = Field(
        "fp32",
        description="number format; fp32, fp64, bf16-pure: of everything; fp16, bf16: of the arithmetic (mixed); tf32: of products on "
        "a GPU; fp8: of linear layers on a GPU",
    )
    kernel: Literal["torch", "fused", "auto"] = Field(
        "torch",
        description="what computes small convolutions on a CPU: torch, or our own kernel of convolution, ReLU and pooling in one; auto: "
        "what a short trial finds quicker",
    )
    graph: Annotated[str, OneOf((*GRAPHS, "auto"))] = Field(
        "eager",
        description="eager: operator by operator; compile: the model by torch.compile, or a step traced as one graph and compiled by "
        "inductor; export: the model as one exported graph; captured: a step as one CUDA graph; auto: what a short trial finds quickest "
        "for a run of this length",
    )
    graph_of: Literal["auto", "model", "step"] = Field(
        "auto",
        description="what becomes a graph: the model, or the whole step with loss, backward pass and update; auto: step where captured",
    )
    graph_cache: Literal["keep", "fresh"] = Field(
        "keep", description="what was compiled is kept for the next run, or every run compiles anew (to measure that)"
    )
    remat: Literal["none", "selective", "full"] = Field(
        "none",
        description="activations computed again in the backward pass instead of kept: none, all but those of products, all",
    )
    wrap: Literal["none", "accelerate"] = Field(
        "none", description="who wraps the model: our own replication, or Accelerator.prepare and .backward"
    )
    buffers: Literal["mean", "rank0", "sync"] = Field(
        "mean",
        description="how running statistics (BatchNorm) of the ranks become one model before any evaluation; sync: BatchNorm normalises "
        "with the whole batch of all ranks",
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        123, description="seed of weights and sample order; in a study each repeat adds one"
    )
    log_every: Count = Field(100, description="iterations between two lines of loss and score, per rank")
    profile: Literal["none", "inference", "training"] = Field(
        "none", description="look into `steps` batches operator by operator instead of training; never a timing"
    )
    price: NotNegative | None = Field(
        None, description="what one device costs an hour, in your own money; the record then holds what the run cost"
    )

    @property
    def is_step_graph(self) -> bool:
        """A whole step, with its update, is one graph."""
        return GRAPHS[self.graph].of_step and self.graph_of == "step"


class Settings(Ending, Loop, Distributed, Optim, Batching, Queue, Process):
    """All settings of one run; flat, because that is how they are typed, stored and swept.

    The bases stand in reverse: pydantic lists the fields of the last base first.
    """


# Settings that say how a run is watched, not what is computed: the same experiment whatever their value.
NOT_THE_EXPERIMENT = frozenset(
    {"timeout", "meet_within", "head", "port", "machine", "time", "account", "qos", "pack", "max_jobs", "price"}
    | {"chosen", "again"}  # why a setting is what it is, why a run is made again
    | {"probe", "inputs"}  # follow from the task; what it depends on is compared by itself
)

# Settings that say where, how fast or how closely watched the same arithmetic runs: a score is the same whatever their value, up to
# rounding. Any other one, a task's parameters too, may change what is learned.
NOT_THE_RESULT = NOT_THE_EXPERIMENT | frozenset(Process.model_fields) | frozenset(Queue.model_fields) | {
    "task", "seed", "accumulate", "test_batch", "workers", "update", "sharding", "bucket_mb", "bucket_view", "reshard", "table_split",
    "kernel", "graph", "graph_of", "graph_cache", "remat", "wrap", "log_every", "target", "keep", "profile",
}  # fmt: skip


def names() -> list[str]:
    return list(Settings.model_fields)
