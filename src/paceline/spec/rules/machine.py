"""What this machine cannot run: torch, memory, cores, GPUs. A job in a queue runs on others, which are not known here."""

from __future__ import annotations

from paceline.spec.rules.rule import Rule

# A rank that has imported torch and joined a group holds about this much before it has any data (measured: 325 MB resident
# with torch 2.13 on a CPU, part of it shared between ranks).
RANK_BYTES = 300 << 20

MACHINE: tuple[Rule, ...] = (
    Rule(
        "torch-installed",
        lambda spec, known: known.host.torch is None,
        "training needs torch, and it is not installed in this Python: pip install torch",
    ),
    Rule(
        "ranks-fit-memory",
        lambda spec, known: not spec.in_queue and spec.topology.processes * RANK_BYTES > known.host.memory_bytes,
        "on={on} asks for {processes} processes; with torch alone each takes about 300 MB, more than this machine's "
        "{memory_gib:.0f} GiB together: use fewer processes",
    ),
    Rule(
        "threads-in-reason",
        lambda spec, known: (
            not spec.in_queue and isinstance(spec.threads, int) and spec.threads > 64 * known.host.cores
        ),
        "threads={threads} on a machine with {cores} cores: no work could be spread over so many; use threads={cores} or fewer",
    ),
    Rule(
        "cuda-present",
        lambda spec, known: spec.device == "cuda" and not spec.in_queue and known.host.usable_gpus == 0,
        "device=cuda, but this machine has no GPU that this torch ({torch}) can use: use device=cpu",
    ),
    Rule(
        "a-gpu-each",
        lambda spec, known: (
            spec.device == "cuda" and not spec.in_queue and 0 < known.host.usable_gpus < spec.topology.processes
        ),
        "device=cuda with {processes} processes on {usable_gpus} GPUs: two ranks would share a GPU and measure each "
        "other; use on=1x{usable_gpus} or device=cpu",
    ),
)
