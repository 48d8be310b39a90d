"""One topology, every launcher's own words for it: the only place where `on=MxP` becomes somebody's flags. Pure.

torchrun counts processes per machine, accelerate in all, mpirun in all, Slurm by nodes and tasks per node.
A `Var` is a shell variable of a job's script; everywhere else the words are plain.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from paceline.spec.run import Spec

Words = tuple[str, ...]
PORT = 29500


class Var(str):
    """A word the job's shell fills in: `Var("$HEAD")`. It stands in double quotes, so that it stays one word."""

    __slots__ = ()


def quoted(words: Sequence[str]) -> str:
    """The words as bash reads them."""
    return " ".join(f'"{word}"' if isinstance(word, Var) else shlex.quote(word) for word in words)


def torchrun(spec: Spec, *, head: str, port: str, machine: str, is_head: str, run_id: str) -> Words:
    """`machine` and the rest are words of their own, because in a job they are variables."""
    topology = spec.topology
    words = ["--nnodes", str(topology.machines), "--nproc-per-node", str(topology.processes), "--max-restarts", "0"]
    if topology.machines == 1:
        # A rendezvous of its own on a free port: nothing can be taken.
        return (*words, "--standalone", "--local-addr", "127.0.0.1")
    if spec.rendezvous == "static":
        return (*words, "--node-rank", machine, "--master-addr", head, "--master-port", port)
    where = Var(f"{head}:{port}") if isinstance(head, Var) or isinstance(port, Var) else f"{head}:{port}"
    # Without is_host each agent guesses from names and addresses whether it is the head, and may guess wrong.
    conf = Var(f"is_host={is_head}") if isinstance(is_head, Var) else f"is_host={is_head}"
    return (*words, "--rdzv-backend", "c10d", "--rdzv-endpoint", where, "--rdzv-id", run_id, "--rdzv-conf", conf)


def accelerate(spec: Spec, *, head: str, port: str, machine: str) -> Words:
    """accelerate counts processes over all machines. `--multi_gpu` also means "several processes" on a CPU: its `--cpu` starts one."""
    topology = spec.topology
    words = ["--num_processes", str(topology.world_size), "--num_machines", str(topology.machines)]
    words += [
        "--mixed_precision",
        spec.precision if spec.precision in ("fp16", "bf16") else "no",
        "--dynamo_backend",
        "no",
    ]
    if topology.world_size > 1:
        words.append("--multi_gpu")
    if topology.machines == 1:
        return (*words, "--main_process_port", "0")  # any free one
    return (
        *words, "--machine_rank", machine, "--main_process_ip", head, "--main_process_port", port, "--rdzv_backend", spec.rendezvous,
    )  # fmt: skip


def mpirun(spec: Spec) -> Words:
    return ("-n", str(spec.topology.world_size))


def srun(spec: Spec, *, per_machine: int) -> Words:
    """`per_machine` is 1 for an agent that starts the ranks itself, and P where srun starts them; the CPUs are the same."""
    topology = spec.topology
    assert isinstance(spec.cpus_per_task, int)
    cpus = spec.cpus_per_task * topology.processes // per_machine
    return (
        "--nodes", str(topology.machines), "--ntasks", str(topology.machines * per_machine),
        "--ntasks-per-node", str(per_machine), "--cpus-per-task", str(cpus), "--kill-on-bad-exit=1", "--export=ALL",
    )  # fmt: skip


def sentence(spec: Spec) -> str:
    """Said before starting: what `on` means in the launcher's own words."""
    topology = spec.topology
    ranks = f"{topology.world_size} rank{'s' * (topology.world_size > 1)}"
    same = f"{topology.machines} machine{'s' * (topology.machines > 1)} x {topology.processes} = {ranks}"
    own = {
        "torchrun": f"torchrun --nnodes {topology.machines} --nproc-per-node {topology.processes}",
        "accelerate": f"accelerate --num_processes {topology.world_size} --num_machines {topology.machines}",
        "mpirun": f"mpirun -n {topology.world_size}",
        "srun": f"srun --nodes {topology.machines} --ntasks-per-node {topology.processes}",
    }.get(spec.inner)
    parts = [f"on={spec.on}: {same}"]
    if spec.in_queue:
        parts.append(f"sbatch --nodes {topology.machines} --ntasks-per-node {topology.processes}")
    return "; ".join([*parts, own] if own else parts)


# Flags of Open MPI 4 (OMPI) and 5 (PRTE) as variables, so that one command serves both and MPICH, which reads none of them.
_MPI_ENV: dict[str, str | None] = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Bound to one core, a rank's threads and loader processes would share it.
    "OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none",
    # More ranks than cores is the user's choice, as with every other launcher.
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # A waiting rank gives its core away: busy-waiting loses on a machine that has anything else to do.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}  # fmt: skip
# Without it accelerate's ranks each train alone on a CPU (its --cpu would start only one).
_ACCELERATE_ENV: dict[str, str | None] = {"ACCELERATE_USE_CPU": "true"}


def environment(spec: Spec) -> dict[str, str | None]:
    """Variables that a launcher's own ranks need in addition to those that all ranks get."""
    on_cpu = {"accelerate": _ACCELERATE_ENV} if spec.device == "cpu" else {}
    return {"mpirun": _MPI_ENV, **on_cpu}.get(spec.inner, {})
