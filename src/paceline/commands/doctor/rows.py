"""From what was seen to rows: machine, GPU, number formats, compilers, network, cluster in a box. Pure; it asks nothing.
Launchers and backends, which the rules judge, are in `start.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paceline.commands.doctor.seen import Box, Interface, Row, Seen

GIB = 1 << 30
FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
# Flags of a CPU that computes in the format itself (x86, then ARM). tf32 is not here: whether it was used shows in the result.
_CPU_HAS: Mapping[str, tuple[str, ...]] = {
    "fp16": ("avx512_fp16", "amx_fp16", "asimdhp"),
    "bf16": ("avx512_bf16", "amx_bf16", "bf16"),
    "fp8": ("amx_fp8", "f8mm8"),
}
# First compute capability with the format in hardware.
_CUDA_HAS: Mapping[str, tuple[int, int]] = {"fp16": (5, 3), "bf16": (8, 0), "fp8": (8, 9)}
# Where the advice begins in our own sentences: "what is so: use this instead".
_ADVICE = re.compile(
    r"[:;] (?=(?:use|install|pip|apt|apt-get|give|add|leave|try|take|start|make|on Debian|in a container)\b)"
)


def split(sentence: str) -> tuple[str, str]:
    """(what is so, what to do) of a sentence of the rules; all of it twice when there is no seam.

    >>> split("launcher=mpirun, but there is no mpirun on this machine: install one (rule: mpirun-installed)")
    ('launcher=mpirun, but there is no mpirun on this machine (rule: mpirun-installed)', 'install one')
    """
    text, _, rule = sentence.partition(" (rule: ")
    advice = _ADVICE.search(text)
    if advice is None:
        return sentence, text
    return text[: advice.start()] + (f" (rule: {rule}" if rule else ""), text[advice.end() :]


def gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


def machine(seen: Seen) -> Iterator[Row]:
    yield _cores(seen)
    yield _memory(seen)
    disk, where = seen.disk, f"{gib(seen.disk.free_bytes)} free for {seen.disk.path}"
    if not disk.writable:
        yield Row(
            "machine",
            "disk",
            "no",
            f"{where}, but you may not write there",
            "give --out DIR on a disk you may write to",
        )
    elif disk.free_bytes < GIB:
        yield Row("machine", "disk", "partly", where, "free some, or give --out DIR on another disk")
    else:
        yield Row("machine", "disk", "yes", where)
    linux = seen.system.startswith("Linux")
    fix = (
        "" if linux else "everything but `paceline cluster`, which needs Linux, should work; it is tested on Linux only"
    )
    yield Row("machine", "system", "yes" if linux else "partly", seen.system, fix)
    yield Row("machine", "Python", "yes", f"{seen.python} ({seen.python_path})")
    yield _torch(seen)


def _cores(seen: Seen) -> Row:
    text, fix = f"{seen.host.cores} of {seen.all_cores}: {seen.cpu}", ""
    if seen.host.cores < seen.all_cores:
        fix = (
            "this process was bound to some of the cores (taskset, a container, Slurm); threads=auto counts only those"
        )
    if seen.quota_cores is not None and seen.quota_cores < seen.host.cores:
        text += f"; the container may use {seen.quota_cores:.1f} of them at a time"
        fix = "threads=auto does not know of the quota: give threads= and on= to match, or raise it (docker --cpus)"
    return Row("machine", "cores", "partly" if fix else "yes", text, fix)


def _memory(seen: Seen) -> Row:
    text = f"{gib(seen.host.memory_bytes)}, {gib(seen.free_bytes)} of it free"
    room, fix = seen.free_bytes, ""
    if seen.limit_bytes is not None and seen.limit_bytes < seen.host.memory_bytes:
        text += f"; the container may use {gib(seen.limit_bytes)}"
        room = min(room, seen.limit_bytes)
    if room < GIB:
        fix = "each rank takes about 0.3 GiB with torch alone: end other programs, or use few processes"
    return Row("machine", "memory", "partly" if fix else "yes", text, fix)


def _torch(seen: Seen) -> Row:
    if seen.host.torch is None:
        return Row("machine", "torch", "no", "not installed in this Python", "pip install torch")
    if seen.tried.why:
        fix = "install it again: pip install --force-reinstall torch"
        return Row(
            "machine", "torch", "no", f"{seen.host.torch} is installed, but does not start: {seen.tried.why}", fix
        )
    facts: dict[str, Any] = seen.tried.facts["torch"]
    made = f"for CUDA {facts['cuda']}" if facts["cuda"] else "for CPUs only"
    return Row("machine", "torch", "yes", f"{facts['version']}, built {made}; {facts['threads']} threads")


def gpu(seen: Seen) -> Iterator[Row]:
    facts, driver = seen.tried.facts, seen.programs.get("nvidia-smi")
    words = driver.said.splitlines()[:1] if driver else []
    for number, one in enumerate(facts.get("gpus", [])):
        major, minor = one["capability"]
        text = f"{one['name']}, {gib(one['memory_bytes'])}, compute capability {major}.{minor}"
        yield Row("GPU", f"cuda:{number}", "yes", f"{text}, driver {words[0] if words else 'unknown'}")
    if facts.get("gpus"):
        return
    here = f"none that torch can use: {seen.host.gpus} in /dev" if seen.host.gpus else "none in this machine"
    if seen.tried.why:
        yield Row("GPU", "GPU", "no", f"{here}; torch does not start", "mend torch first")
    elif not seen.host.gpus:
        yield Row(
            "GPU", "GPU", "no", here, "nothing to mend: device=auto trains on the CPU; a GPU needs another machine"
        )
    elif not facts["torch"]["cuda"]:
        fix = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"
        yield Row(
            "GPU", "GPU", "no", f"{here}, but this torch ({facts['torch']['version']}) is built for CPUs only", fix
        )
    else:
        why = facts.get("no_gpu") or seen.tried.ended or "CUDA shows it none"
        fix = f"is CUDA_VISIBLE_DEVICES set, does nvidia-smi answer, is its driver new enough for CUDA {facts['torch']['cuda']}?"
        yield Row("GPU", "GPU", "no", f"{here}; {why}", fix)


def precisions(seen: Seen, applied: Mapping[tuple[str, str], str]) -> Iterator[Row]:
    """`applied`: (format, cpu or cuda) -> the settings that make a run compute in it, or why there are none."""
    if seen.tried.why:
        yield Row("precisions", "all", "no", "not tried: torch does not start", "mend torch first")
        return
    if (limit := seen.tried.facts.get("torch", {}).get("onednn_limit")) is not None:
        yield Row(
            "precisions", "AMX on cpu", "no", f"runs do without Intel's matrix unit (ONEDNN_MAX_CPU_ISA={limit}): the variable was set, or "
            "the processor announces the unit and cannot run it, as in some virtual machines",
            "products in bf16 are slower than such a processor could make them; use a machine that passes AMX through",
        )  # fmt: skip
    for device in seen.tried.devices:
        for name in FORMATS:
            yield _format(seen, name, device, applied[name, device.partition(":")[0]])


def _format(seen: Seen, name: str, device: str, setting: str) -> Row:
    group, what, done = "precisions", f"{name} on {device}", seen.tried.attempt(name, device)
    if done is None:
        at: dict[str, str] = seen.tried.facts.get("trying") or {}
        here = (at.get("format"), at.get("device")) == (name, device)
        why = seen.tried.ended if here else "not tried: an attempt before it ended the process"
        return Row(group, what, "no", why, "use another format; tell us, if this device should have it")
    if not done["ok"]:
        return Row(group, what, "no", done["why"], "use fp32" if name != "fp32" else "this torch cannot train on it")
    base = seen.tried.attempt("fp32", device)
    times = done["took_s"] / base["took_s"] if base and base["ok"] else None
    parts = [] if times is None or name == "fp32" else [_compared(times, done["size"])]
    slow = _lacks_hardware(seen, name, device) and times is not None and times > 1
    if not done["backward"]:
        parts.append("the product alone, no backward")
    return Row(
        group, what, "partly" if slow else "yes", "; ".join([*(["slow: no hardware support"] if slow else []), *parts, setting]),
        "use bf16 or fp32 for speed" if slow and name != "bf16" else "use fp32 for speed" if slow else "",
    )  # fmt: skip


def _compared(times: float, size: int) -> str:
    """No more digits than one small product bears."""
    many = "over 100" if times > 100 else f"{times:.{0 if times >= 10 else 1}f}"
    return f"a {size}x{size} product takes {many} times as long as in fp32"


def _lacks_hardware(seen: Seen, name: str, device: str) -> bool:
    """Only where the device says so: a CPU whose flags we cannot read lacks nothing."""
    if device != "cpu":
        capability: list[int] = seen.tried.facts["gpus"][int(device.partition(":")[2])]["capability"]
        return tuple(capability) < _CUDA_HAS.get(name, (0, 0))
    return bool(seen.flags) and name in _CPU_HAS and not seen.flags.intersection(_CPU_HAS[name])


def compilers(seen: Seen) -> Iterator[Row]:
    """For our own kernels and for torch.compile; training without either needs none."""
    other = {"g++": "clang++", "clang++": "g++"}
    for name, package in (
        ("g++", "g++"),
        ("clang++", "clang"),
        ("nvcc", "nvidia-cuda-toolkit"),
        ("ninja", "ninja-build"),
    ):
        program = seen.programs.get(name)
        if program is not None and not program.why:
            yield Row("compilers", name, "yes", f"{_version(name, program.said)} ({program.path})")
            continue
        said = f"{program.path}: {program.why}" if program else "not installed"
        fix = f"apt install {package}"
        if other.get(name) in seen.programs:
            fix = f"not needed beside {other[name]}; {fix}"
        elif name == "nvcc":
            fix = f"only for CUDA kernels of your own; {fix}"
        yield Row("compilers", name, "partly" if program else "no", said, fix)
    if seen.headers:
        yield Row("compilers", "Python.h", "yes", seen.headers)
    else:
        yield Row("compilers", "Python.h", "no", "not installed; torch.compile needs it", "apt install python3-dev")


def _version(name: str, said: str) -> str:
    """The line that has it: nvcc says its release in the fourth."""
    lines = said.splitlines() or ["no version"]
    return next((line for line in lines if "release" in line), lines[0]) if name == "nvcc" else lines[0]


def network(seen: Seen) -> Iterator[Row]:
    for one in seen.interfaces:
        where = ", ".join(one.addresses) or "no address"
        speed = f", {one.speed_mbps} Mbit/s" if one.speed_mbps > 0 else "" if one.loopback else ", speed unknown"
        if one.up and one.addresses:
            yield Row("network", one.name, "yes", f"up, {where}{speed}{', this machine only' if one.loopback else ''}")
        elif one.up:
            yield Row(
                "network",
                one.name,
                "partly",
                f"up, {where}{speed}",
                f"runs do not use it; to change that: ip address add ... dev {one.name}",
            )
        else:
            yield Row(
                "network",
                one.name,
                "no",
                f"down, {where}",
                f"runs do not use it; to change that: ip link set {one.name} up",
            )
    yield _name(seen)


def _name(seen: Seen) -> Row:
    group, what = "network", f"host name {seen.name}"
    if isinstance(seen.addresses, str):
        return Row(group, what, "partly", f"resolves to nothing ({seen.addresses})", _by_address(seen.interfaces))
    where = ", ".join(seen.addresses)
    if all(one.startswith("127.") or one == "::1" for one in seen.addresses):
        return Row(
            group,
            what,
            "partly",
            f"resolves to {where}, which every machine calls itself",
            _by_address(seen.interfaces),
        )
    return Row(group, what, "yes", f"resolves to {where}")


def _by_address(interfaces: tuple[Interface, ...]) -> str:
    real = [one.addresses[0] for one in interfaces if one.up and one.addresses and not one.loopback]
    head = f"head={real[0]}" if real else "head=ADDRESS"
    return f"for runs on several machines give {head}, or write this machine's real address into /etc/hosts"


def box(seen: Seen) -> Iterator[Row]:
    group, state = "cluster in a box", seen.box
    if not isinstance(state, Box):
        yield Row(group, "cluster up", "no", state, "try again; `paceline cluster up` says more")
        return
    for sentence in state.problems:
        said, fix = split(sentence)
        yield Row(group, "cluster up", "no", said, fix)
    if state.problems:
        return
    yield Row(group, "cluster up", "yes", "nothing is missing")
    for option, problems in (("--link", state.link), ("--delay", state.delay)):
        said, fix = split(problems[0]) if problems else ("nothing is missing", "")
        yield Row(group, f"cluster up {option}", "no" if problems else "yes", said, fix)
    if state.condition == "up":
        yield Row(group, "now", "yes", "a cluster is up on this machine")
    elif state.condition == "stale":
        yield Row(
            group, "now", "partly", "what is left of a cluster is here, but it is not alive", "paceline cluster down"
        )
    else:
        yield Row(group, "now", "no", "no cluster is up", "paceline cluster up --machines 2 --cores 1")
