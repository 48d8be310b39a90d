"""launcher=slurm+...: what starts the ranks inside a Slurm job. Pure: each renders one line of the script and reads its last words."""

from __future__ import annotations

import re

from paceline.launch import dialect
from paceline.launch.dialect import Var, quoted
from paceline.launch.mpirun import mpirun_words
from paceline.launch.plan import Plan, worker_argv
from paceline.launch.slurm.script import HEAD, IS_HEAD, MACHINE, PORT, Section, per_machine, python_of, render
from paceline.launch.torchrun import agents_words
from paceline.records.judge import by_signal
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome, failed
from paceline.spec.run import Spec

# "srun: error: node1: task 1: Killed"; tasks that srun ended itself are "Terminated".
_TASK = re.compile(r"srun: error: (\S+): tasks? (\d+)[^:]*: (Killed|Segmentation fault|Aborted|Bus error)")
_SIGNALS = {"Killed": -9, "Segmentation fault": -11, "Aborted": -6, "Bus error": -7}
_SILENT = re.compile(r"srun: error: Task launch for \S+ failed on node (\S+): ([^\n]*)")
_UNABLE = re.compile(r"srun: error: ((?:Unable to|Task launch|Application launch)[^\n]*)")


# Which of srun's plug-ins an MPI answers to, asked in the job, where it is used: the wrong one makes N worlds of one rank.
_PLUGIN_OF_THE_MPI = Var("--mpi=$(command -v ompi_info > /dev/null && echo pmix || echo pmi2)")
_PLUGIN = re.compile(r"srun: error: Invalid MPI type '(\w+)'")


def job_name(task: str) -> str:
    return "paceline-" + re.sub(r"[^A-Za-z0-9.-]+", "-", task.rpartition("/")[2])[:40]


def sruns_words(log: str) -> Outcome | None:
    """The cause before its consequences: when srun cannot start some ranks, it kills those it has started."""
    if match := _SILENT.search(log):
        return failed(
            "launch", f"{match[1]} does not answer Slurm ({match[2]}): the machine, its slurmd or its link is down"
        )
    if match := _PLUGIN.search(log):
        return failed(
            "launch",
            f"srun cannot use its plug-in --mpi={match[1]} on the machines (see `srun --mpi=list`; Debian's pmix needs the package "
            "libpmix-dev too): install what it lacks, or use launcher=slurm+mpirun",
        )
    if match := _UNABLE.search(log):
        return failed("launch", f"srun could not start the processes: {match[1]}")
    if match := _TASK.search(log):
        return by_signal(f"rank {match[2]} on {match[1]}", _SIGNALS[match[3]])
    return None


class _InSlurm:
    """A job of one run."""

    def plan(self, spec: Spec, run: RunDir) -> Plan:
        script = render([self.section(spec, run)], name=job_name(spec.task))
        return Plan(spec.launcher, spec.topology.world_size, script=script, said=dialect.sentence(spec))

    def section(self, spec: Spec, run: RunDir) -> Section:
        return Section(spec, run, self.start(spec, run))

    def start(self, spec: Spec, run: RunDir) -> str:
        raise NotImplementedError

    def last_words(self, log: str) -> Outcome | None:
        raise NotImplementedError


class SlurmTorchrun(_InSlurm):
    def start(self, spec: Spec, run: RunDir) -> str:
        words = dialect.torchrun(
            spec, head=HEAD, port=PORT, machine=MACHINE, is_head=IS_HEAD, run_id=spec.key()
        )  # fmt: skip
        python, *worker = worker_argv("train", run, python=python_of(spec))
        return per_machine(spec, (python, "-m", "torch.distributed.run", *words, *worker))

    def last_words(self, log: str) -> Outcome | None:
        return agents_words(log) or sruns_words(log)


class SlurmAccelerate(_InSlurm):
    def start(self, spec: Spec, run: RunDir) -> str:
        words = dialect.accelerate(spec, head=HEAD, port=PORT, machine=MACHINE)
        python, *worker = worker_argv("train", run, python=python_of(spec))
        return per_machine(spec, (python, "-m", "accelerate.commands.launch", *words, *worker))

    def last_words(self, log: str) -> Outcome | None:
        return agents_words(log) or sruns_words(log)


class SlurmMpirun(_InSlurm):
    def start(self, spec: Spec, run: RunDir) -> str:
        worker = worker_argv("train", run, python=python_of(spec))
        return quoted(("mpirun", *dialect.mpirun(spec), *worker))

    def last_words(self, log: str) -> Outcome | None:
        return mpirun_words(log) or sruns_words(log)


class SlurmSrun(_InSlurm):
    def start(self, spec: Spec, run: RunDir) -> str:
        worker = worker_argv("train", run, python=python_of(spec))
        plugin = _PLUGIN_OF_THE_MPI if spec.backend == "mpi" else "--mpi=none"
        return quoted(("srun", *dialect.srun(spec, per_machine=spec.topology.processes), plugin, *worker))

    def last_words(self, log: str) -> Outcome | None:
        return sruns_words(log)
