"""What ranks of one machine cannot share, and why: memory for their messages, cores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.base.cache import usable
from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.host import COMPILERS
from paceline.spec.rules.rule import Known, Rule
from paceline.spec.run import Spec

MESSAGES: tuple[Rule, ...] = (
    Rule(
        "memory-has-peers",
        lambda spec, known: spec.messages == "memory" and spec.topology.world_size == 1,
        "messages=memory with on={on}: one process sends no messages; leave it out",
    ),
    Rule(
        "memory-of-one-machine",
        lambda spec, known: spec.messages == "memory" and spec.topology.machines > 1,
        "messages=memory with on={on}: only ranks of one machine have memory in common; use messages=backend",
    ),
    Rule(
        "memory-of-the-host",
        lambda spec, known: spec.messages == "memory" and spec.device == "cuda",
        "messages=memory with device=cuda: gradients on a GPU travel by its own links; use messages=backend (and backend=nccl)",
    ),
    Rule(
        "memory-carries-our-sums",
        lambda spec, known: spec.messages == "memory" and not SHARDINGS[spec.sharding].shared_memory,
        "messages=memory with sharding={sharding}: its messages are torch's, which go through the backend; use messages=backend, "
        "or sharding=none",
    ),
    Rule(
        "memory-carries-our-steps",
        lambda spec, known: spec.messages == "memory" and spec.wrap == "accelerate",
        "messages=memory with wrap=accelerate: accelerate sends gradients through the backend; use messages=backend, or wrap=none",
    ),
    Rule(
        "memory-on-linux",
        lambda spec, known: spec.messages == "memory" and known.host.platform != "linux",
        "messages=memory: processes find each other's memory through Linux's /proc, and this is another system; use messages=backend",
    ),
    Rule(
        "memory-has-a-compiler",
        lambda spec, known: (
            spec.messages == "memory" and not spec.in_queue and not known.host.programs.intersection(COMPILERS)
        ),
        "messages=memory is summed by a kernel of ours, compiled at first use, and there is no C++ compiler on this machine: install "
        "one (apt install g++), or use messages=backend",
    ),
    Rule(
        "pin-has-cores",
        lambda spec, known: (
            spec.pin == "cores"
            and not spec.in_queue
            and isinstance(spec.threads, int)
            and spec.topology.processes * spec.threads > known.host.cores
        ),
        "pin=cores with {processes} processes of {threads} threads on {cores} cores: two would have to keep to the same one; use "
        "fewer threads or processes, or pin=none",
    ),
    Rule(
        "pin-by-one-only",
        lambda spec, known: spec.pin == "cores" and LAUNCHERS[spec.launcher].binds_cores,
        "pin=cores with launcher={launcher}: MPI and Slurm bind ranks to cores by rules of their own; use their options, or "
        "launcher=local",
    ),
    Rule(
        "pin-on-linux",
        lambda spec, known: spec.pin == "cores" and known.host.platform != "linux",
        "pin=cores: only Linux is asked to keep a process to its cores, and this is another system; leave it out",
    ),
)


def carrier(spec: Spec, asked: Mapping[str, Any], known: Known) -> str:
    """messages=auto: memory where that is possible; but who names a backend gets its messages. A queue's machines are not known here."""
    wanted = spec.model_copy(update={"messages": "memory"})
    if "backend" in asked or spec.in_queue or any(rule.breaks(wanted, known) for rule in MESSAGES) or not usable():
        return "backend"
    return "memory"
