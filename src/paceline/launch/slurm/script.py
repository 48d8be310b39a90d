"""The sbatch script of one run, or of several packed into one job: a pure rendering, kept with the results for everyone
to read."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.launch import dialect
from paceline.launch.dialect import Var, quoted
from paceline.launch.plan import shared_env, worker_argv
from paceline.records.layout import RunDir
from paceline.spec.run import Spec

_HEADER = """\
hosts=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
export PACELINE_HEAD={head}
export PACELINE_PORT={port}
echo "node list:      $SLURM_JOB_NODELIST"
echo "nodes:          $SLURM_JOB_NUM_NODES"
echo "tasks per node: {tasks}"
echo "CPUs per task:  {cpus}"
echo "master address: $PACELINE_HEAD"
echo "master port:    $PACELINE_PORT"
"""

# A packed run may need less than the job has: then it sees only its own part, in the words srun and mpirun read.
_NARROW = """\
narrow() {
  SLURM_JOB_NODELIST=$(IFS=,; echo "${hosts[*]:0:$1}")
  export SLURM_JOB_NODELIST SLURM_NODELIST=$SLURM_JOB_NODELIST
  export SLURM_JOB_NUM_NODES=$1 SLURM_NNODES=$1 SLURM_NTASKS=$(($1 * $2)) SLURM_NPROCS=$(($1 * $2))
  export SLURM_NTASKS_PER_NODE=$2 SLURM_TASKS_PER_NODE="$2(x$1)"
}
"""


PREFLIGHT_FAILED = 66  # the exit code of a run whose machines did not agree: its ranks were never started


@dataclass(frozen=True, slots=True)
class Section:
    """One run of the job; `start` is the line that starts its ranks."""

    spec: Spec
    run: RunDir
    start: str


def python_of(spec: Spec) -> str:
    """The Python this command runs in; with `activate`, the one that file brings."""
    return sys.executable if spec.activate is None else "python"


def clock(seconds: float) -> str:
    """
    >>> clock(5400)
    '01:30:00'
    """
    limit_s = max(60, int(seconds + 59) // 60 * 60)  # Slurm counts in minutes, upwards
    return f"{limit_s // 3600:02d}:{limit_s // 60 % 60:02d}:{limit_s % 60:02d}"


def options(specs: Sequence[Spec], *, name: str) -> list[str]:
    """What the job asks for: the resources of its largest run, and everything else from the first one."""
    first = specs[0]
    tops = [spec.topology for spec in specs]
    words = [
        f"--job-name={name}",
        f"--nodes={max(top.machines for top in tops)}",
        f"--ntasks-per-node={max(top.processes for top in tops)}",
        f"--cpus-per-task={max(int(spec.cpus_per_task) for spec in specs)}",
    ]
    words += [
        f"--{option}={value}"
        for option in ("partition", "mem", "account", "qos", "constraint", "gres")
        if (value := getattr(first, option)) is not None
    ]
    if first.time is not None:
        words.append(f"--time={clock(first.time)}")
    # Run again by Slurm, the same folder would hold two runs: Paceline itself decides what is run again.
    words += ["--open-mode=append", "--no-requeue"]
    return words + shlex.split(first.sbatch or "")


def _environment(spec: Spec) -> list[str]:
    """HEAD and PORT are this job's: the header has set them."""
    env = {name: value for name, value in shared_env(spec).items() if name not in ("PACELINE_HEAD", "PACELINE_PORT")}
    foreign = [name for name, value in env.items() if value is None]
    return [f"  unset {' '.join(foreign)}"] + [
        f"  export {name}={shlex.quote(value)}" for name, value in env.items() if value is not None
    ]


def _section(number: int, section: Section, *, one_size: bool) -> str:
    spec, run = section.spec, section.run
    topology = spec.topology
    check = quoted(
        (
            "srun",
            *dialect.srun(spec, per_machine=1),
            *worker_argv("preflight", run, python=python_of(spec)),
        )
    )
    limit = f"timeout --kill-after=10 {spec.timeout:g} " if spec.timeout else ""
    lines = [
        f"run_{number}() {{  # on={spec.on}, seed {spec.seed}",
        f"  cd {shlex.quote(str(run.path))} || return 1",
        *([] if one_size else [f"  narrow {topology.machines} {topology.processes}"]),
        *_environment(spec),
        # Every CPU of the machine for the one agent that starts its ranks; mpirun asks srun for its own agents.
        "  export PACELINE_GIVEN_MACHINES=$SLURM_JOB_NUM_NODES PACELINE_GIVEN_PROCESSES=${SLURM_NTASKS_PER_NODE:-}",
        f"  export SRUN_CPUS_PER_TASK={int(spec.cpus_per_task) * topology.processes}",
        "  date +%s.%N > job/checking",
        f"  timeout --kill-after=5 {spec.meet_within + 15:g} {check} \\",
        f"    > logs/preflight.out 2> logs/preflight.err || return {PREFLIGHT_FAILED}",
        "  date +%s.%N > job/began",
        f"  {limit}{section.start} > logs/{spec.inner}.out 2> logs/{spec.inner}.err",
        "}",
        f"(run_{number})",
        "code=$?",
        f"cd {shlex.quote(str(run.path))} && echo \"$code $(date +%s.%N)\" > job/ended.new && mv job/ended.new job/ended",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def render(sections: Sequence[Section], *, name: str) -> str:
    """The whole script. Everything a user typed is quoted or was checked to be one plain word."""
    specs = [section.spec for section in sections]
    first = specs[0]
    tops = {(spec.topology.machines, spec.topology.processes) for spec in specs}
    one_size = len(tops) == 1
    head = '"${hosts[0]}"' if first.head is None else shlex.quote(first.head)
    port = "$((20000 + SLURM_JOB_ID % 12000))" if first.port is None else str(first.port)
    blocks = ["#!/bin/bash\n" + "".join(f"#SBATCH {word}\n" for word in options(specs, name=name))]
    blocks.append("set -u\n")
    if first.activate is not None:
        blocks.append(f"set +u\nsource {shlex.quote(first.activate)}\nset -u\n")
    else:
        blocks.append(f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"\n')
    blocks.append(
        _HEADER.format(
            head=head, port=port, tasks=max(p for _, p in tops), cpus=max(int(spec.cpus_per_task) for spec in specs)
        )
    )
    if not one_size:
        blocks.append(_NARROW)
    blocks += [_section(number, section, one_size=one_size) for number, section in enumerate(sections, start=1)]
    # The job's own end is that of its last run; each run's is in its folder.
    blocks.append("exit $code\n")
    return "\n".join(blocks)


def per_machine(spec: Spec, words: Sequence[str]) -> str:
    """`words` once on every machine; its variables are filled in there, not where the script runs."""
    inner = f"exec {quoted(words)}"
    return f"{quoted(('srun', *dialect.srun(spec, per_machine=1)))} bash -c {shlex.quote(inner)}"


HEAD, PORT, MACHINE = Var("$PACELINE_HEAD"), Var("$PACELINE_PORT"), Var("$SLURM_NODEID")
IS_HEAD = Var("$((SLURM_NODEID == 0))")
