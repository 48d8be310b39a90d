"""The doctor's judgement, without a machine: what was seen goes in, rows come out. What really happens here is in e2e/test_doctor.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.base.powercap import Rapl, Zone
from paceline.commands.doctor import rows, start
from paceline.commands.doctor.energy import energy
from paceline.commands.doctor.examine import judge
from paceline.commands.doctor.seen import Box, Disk, Interface, Partition, Program, Row, Seen, Slurm, Tried
from paceline.launch.plan import LAUNCHERS
from paceline.spec.host import Host

GIB = 1 << 30
WHOLE = Host(
    4, 16 * GIB, gpus=0, torch="2.13.0+cpu", programs=frozenset({"mpirun", "sbatch", "srun"}),
    packages=frozenset({"accelerate", "mpi4py"}), mpi="openmpi",
)  # fmt: skip
BARE = Host(4, 16 * GIB, gpus=0, torch="2.13.0+cpu")


def attempt(name: str, device: str = "cpu", **more: Any) -> dict[str, Any]:
    return {
        "format": name,
        "device": device,
        "ok": True,
        "backward": True,
        "far": 0.0,
        "took_s": 1e-4,
        "size": 128,
        **more,
    }


def facts(**more: Any) -> dict[str, Any]:
    return {
        "torch": {"version": "2.13.0+cpu", "cuda": None, "hip": None, "threads": 4}, "backends": {"gloo": True, "nccl": False},
        "gpus": [], "tried": [attempt(name) for name in rows.FORMATS], "trying": None,
        "mpi": {"mpi4py": "4.1.2", "library": "Open MPI 4.1.4"}, **more,
    }  # fmt: skip


HEALTHY = Seen(
    host=WHOLE, tried=Tried(facts()), cpu="a CPU", flags=frozenset({"avx512_bf16", "avx512_fp16", "amx_fp8"}), all_cores=4,
    quota_cores=None, free_bytes=8 * GIB, limit_bytes=None, disk=Disk("/here/runs", 50 * GIB, writable=True), python="3.12.1",
    python_path="/usr/bin/python", headers="/usr/include/Python.h", system="Linux 6.1", name="node7", addresses=("10.0.0.7",),
    programs={
        "mpirun": Program("/usr/bin/mpirun", "mpirun (Open MPI) 4.1.4\n\nReport bugs"), "g++": Program("/usr/bin/g++", "g++ 12"),
        "clang++": Program("/usr/bin/clang++", "clang 14"), "ninja": Program("/usr/bin/ninja", "1.11"),
        "nvcc": Program("/usr/bin/nvcc", "nvcc\nCopyright\nBuilt\nCuda compilation tools, release 13.0, V13.0.88"),
    },
    packages={"accelerate": "1.15.0", "mpi4py": "4.1.2"},
    interfaces=(Interface("lo", ("127.0.0.1",), True, True), Interface("eth0", ("10.0.0.7",), True, False, 1000)),
    slurm=Slurm((Partition("main", True, "up", "infinite", 2, 2),)), box=Box("up"),
    rapl=Rapl((Zone("package-0", Path("/sys/class/powercap/intel-rapl:0"), 262_143_328_850),)),
)  # fmt: skip


def found(seen: Seen) -> dict[tuple[str, str], Row]:
    return {(row.group, row.what): row for row in judge(seen).rows}


def test_a_whole_machine_lacks_only_a_gpu() -> None:
    examined = judge(HEALTHY)
    assert {(row.group, row.what) for row in examined.rows if row.state != "yes"} == {
        ("GPU", "GPU"),
        ("backends", "nccl"),
    }
    assert examined.why is None and "can train" in examined.verdict()


@pytest.mark.parametrize("host", [WHOLE, BARE, replace(BARE, torch=None)])
def test_every_row_that_is_not_yes_says_what_to_do(host: Host) -> None:
    seen = replace(HEALTHY, host=host, slurm=None, programs={}, headers=None, packages={}, tried=Tried(why="broken"))
    for row in judge(seen).rows:
        assert row.found and row.state in ("yes", "no", "partly")
        assert row.fix or row.state == "yes", row


@pytest.mark.parametrize("host", [WHOLE, BARE])
def test_launchers_are_judged_by_the_rules_of_a_run(host: Host) -> None:
    said = {row.what: row.state for row in start.launchers(replace(HEALTHY, host=host))}
    assert list(said) == LAUNCHERS.names()
    refused = {name for name in said if start.refused(host, launcher=name, on="1x2")}
    assert {name for name, state in said.items() if state == "no"} == refused


def test_the_fix_is_cut_out_of_the_rules_sentence() -> None:
    row = found(replace(HEALTHY, host=BARE))["launchers", "mpirun"]
    assert row.found == "launcher=mpirun, but there is no mpirun on this machine (rule: mpirun-installed)"
    assert row.fix.startswith("install one (apt install openmpi-bin")


def test_a_torch_that_does_not_start_stops_everything() -> None:
    examined = judge(replace(HEALTHY, tried=Tried(why="ImportError: libc10.so")))
    assert examined.why is not None and "libc10.so" in examined.why
    assert all(row.state == "no" for row in examined.rows if row.group in ("launchers", "backends", "precisions"))
    missing = judge(replace(HEALTHY, host=replace(WHOLE, torch=None), tried=Tried(why="it is not installed")))
    assert missing.why is not None and "pip install torch" in missing.why


def test_an_attempt_that_ends_the_process_is_named() -> None:
    tried = [attempt("fp64"), attempt("fp32"), attempt("tf32"), attempt("fp16")]
    died = facts(tried=tried, trying={"what": "format", "format": "bf16", "device": "cpu"}, mpi={})
    seen = replace(HEALTHY, tried=Tried(died, ended="the process that tried it crashed with SIGILL"))
    rows_of = found(seen)
    assert "SIGILL" in rows_of["precisions", "bf16 on cpu"].found
    assert rows_of["precisions", "fp8 on cpu"].found.startswith("not tried")
    assert judge(seen).why is None, "fp32 works: it can train"


def test_slow_needs_both_a_missing_flag_and_a_slow_product() -> None:
    slow = facts(tried=[attempt("fp32"), attempt("fp16", took_s=2e-3), attempt("bf16", took_s=5e-5)])
    without = found(replace(HEALTHY, flags=frozenset({"avx2"}), tried=Tried(slow)))
    assert without["precisions", "fp16 on cpu"].state == "partly"
    assert (
        "slow: no hardware support; a 128x128 product takes 20 times as long"
        in without["precisions", "fp16 on cpu"].found
    )
    assert without["precisions", "bf16 on cpu"].state == "yes", "it is not slow, whatever the flags say"
    unknown = found(replace(HEALTHY, flags=frozenset(), tried=Tried(slow)))
    assert unknown["precisions", "fp16 on cpu"].state == "yes", "no flags, no claim"


def test_what_a_setting_applies_comes_from_the_rules() -> None:
    rows_of = found(HEALTHY)
    assert "precision=fp64" in rows_of["precisions", "fp64 on cpu"].found
    assert "(rule: fp8-on-a-gpu)" in rows_of["precisions", "fp8 on cpu"].found


def test_gpus_and_the_reasons_for_none() -> None:
    one = {"name": "NVIDIA H200", "memory_bytes": 140 * GIB, "capability": [9, 0], "no_energy": ""}
    here = replace(WHOLE, gpus=1, torch="2.13.0")
    tried = [attempt(name, device) for name in rows.FORMATS for device in ("cpu", "cuda:0")]
    cuda = facts(gpus=[one], tried=tried, backends={"gloo": True, "nccl": True}, nccl="2.28.9")
    cuda["torch"] = {**cuda["torch"], "cuda": "13.0"}
    programs = {**HEALTHY.programs, "nvidia-smi": Program("/usr/bin/nvidia-smi", "580.1\n")}
    rows_of = found(replace(HEALTHY, host=here, tried=Tried(cuda), programs=programs))
    assert "compute capability 9.0, driver 580.1" in rows_of["GPU", "cuda:0"].found
    assert rows_of["backends", "nccl"].state == rows_of["precisions", "fp8 on cuda:0"].state == "yes"
    built = found(replace(HEALTHY, host=replace(here, torch="2.13.0+cpu")))["GPU", "GPU"]
    assert "built for CPUs only" in built.found and "pip install" in built.fix
    hidden = found(replace(HEALTHY, host=here, tried=Tried({**cuda, "gpus": [], "no_gpu": "No CUDA GPUs"})))
    assert "No CUDA GPUs" in hidden["GPU", "GPU"].found and "CUDA_VISIBLE_DEVICES" in hidden["GPU", "GPU"].fix
    assert hidden["backends", "nccl"].state == "no"


def test_energy_is_one_row_and_says_what_is_not_counted() -> None:
    def row(rapl: Rapl, *gpus: str) -> Row:
        seen = [{"no_energy": why, "name": "a GPU", "memory_bytes": GIB, "capability": [9, 0]} for why in gpus]
        return energy(replace(HEALTHY, rapl=rapl, tried=Tried(facts(gpus=seen))))

    locked = replace(HEALTHY.rapl, why="energy_uj cannot be read (Permission denied)")
    absent = Rapl(why="no RAPL in /sys/class/powercap")
    assert (row(HEALTHY.rapl).state, row(HEALTHY.rapl).found) == ("yes", "counters of package-0 (RAPL)")
    assert row(HEALTHY.rapl, "", "").found == "counters of package-0 (RAPL), cuda:0 (NVML), cuda:1 (NVML)"
    assert row(locked).state == "no" and "chmod" in row(locked).fix and "Permission denied" in row(locked).found
    assert row(absent).state == "no" and "virtual machine" in row(absent).fix
    half = row(absent, "", "nvidia-ml-py is not installed")
    assert half.state == "partly" and "cuda:0 (NVML)" in half.found and "cuda:1: nvidia-ml-py" in half.found
    assert "pip install nvidia-ml-py" in half.fix


def test_another_mpi_than_mpiruns_is_a_trap() -> None:
    strange = facts(mpi={"mpi4py": "4.1.2", "library": "MPICH 4.2.0"})
    row = found(replace(HEALTHY, tried=Tried(strange)))["backends", "mpi"]
    assert row.state == "no" and "every rank would be alone" in row.found
    none = found(replace(HEALTHY, tried=Tried(facts(mpi={"why": "cannot load MPI library"}))))["backends", "mpi"]
    assert none.state == "no" and "cannot load MPI library" in none.found


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("mpirun (Open MPI) 5.0.3\n\nReport bugs", "Open MPI 5.0.3"),
        ("HYDRA build details:\n    Version:                                 4.2.0\n", "MPICH 4.2.0"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.12", "Intel(R) MPI Library for Linux* OS, Version 2021.12"),
    ],
)
def test_every_mpirun_is_understood(said: str, version: str) -> None:
    assert start.mpi_version(Program("mpirun", said)) == version


def test_slurm_without_a_controller_and_with_broken_machines() -> None:
    silent = found(replace(HEALTHY, slurm=Slurm(why="sinfo did not answer within 3 s")))
    assert "did not answer" in silent["Slurm", "controller"].found
    assert silent["launchers", "slurm+srun"].state == "no" and "cluster up" in silent["launchers", "slurm+srun"].fix
    half = Slurm(
        (Partition("main", True, "up", "1:00:00", 1, 2, ("node1",)), Partition("old", False, "down", "infinite", 3, 3))
    )
    rows_of = found(replace(HEALTHY, slurm=half))
    assert rows_of["Slurm", "partition main (default)"].state == "partly"
    assert "1 of 2 machines usable, up, time limit 1:00:00" in rows_of["Slurm", "partition main (default)"].found
    assert "node1" in rows_of["Slurm", "partition main (default)"].fix
    assert rows_of["Slurm", "partition old"].state == "no"
    assert rows_of["launchers", "slurm+srun"].state == "yes"


def test_a_name_that_is_loopback_is_a_trap() -> None:
    row = found(replace(HEALTHY, addresses=("127.0.1.1",)))["network", "host name node7"]
    assert row.state == "partly" and "head=10.0.0.7" in row.fix
    assert "no answer" in found(replace(HEALTHY, addresses="no answer within 3 s"))["network", "host name node7"].found


def test_a_container_is_told_its_limits() -> None:
    rows_of = found(replace(HEALTHY, quota_cores=1.5, limit_bytes=GIB // 2))
    assert (
        "1.5 of them at a time" in rows_of["machine", "cores"].found
        and "docker --cpus" in rows_of["machine", "cores"].fix
    )
    assert rows_of["machine", "memory"].state == "partly"
    full = found(replace(HEALTHY, disk=Disk("/full/runs", 0, writable=False)))["machine", "disk"]
    assert full.state == "no" and "--out" in full.fix


def test_a_box_without_root_and_without_netem() -> None:
    no_root = "making machines and networks needs root, and you are not; try: sudo paceline cluster ..."
    (row,) = rows.box(replace(HEALTHY, box=Box("down", (no_root,))))
    assert (row.state, row.fix) == ("no", "try: sudo paceline cluster ...")
    netem = (
        "the kernel refuses links with a delay (netem): Error: unknown; leave --delay out, or use a kernel that has it"
    )
    states = {row.what: row.state for row in rows.box(replace(HEALTHY, box=Box("stale", delay=(netem,))))}
    assert states == {"cluster up": "yes", "cluster up --link": "yes", "cluster up --delay": "no", "now": "partly"}
