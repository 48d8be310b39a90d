"""What `up` leaves for the other commands: cluster.json, with the shape of the box and its daemons.
It says whether they are still alive; it starts and ends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from paceline.base.errors import BadInput
from paceline.base.files import read_json, write_json
from paceline.cluster import network
from paceline.cluster.box import FOLDER, Box, from_plain
from paceline.cluster.processes import start_ticks

FILE = FOLDER / "cluster.json"
SCHEMA = 1

Condition = Literal["up", "stale", "down"]


@dataclass(frozen=True, slots=True)
class Daemon:
    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True, slots=True)
class State:
    box: Box
    netns_folder_is_ours: bool  # nobody had network namespaces before: /run/netns goes when we go
    complete: bool = False  # False until the last step of `up`: a start that was killed never says True
    daemons: Mapping[str, Daemon] = field(default_factory=dict[str, Daemon])

    @property
    def lost(self) -> list[str]:
        return [name for name, daemon in self.daemons.items() if not daemon.alive]

    @property
    def alive(self) -> bool:
        return self.complete and not self.lost


def write(state: State) -> None:
    daemons = {name: [daemon.pid, daemon.start_ticks] for name, daemon in state.daemons.items()}
    write_json(
        FILE,
        {
            "schema": SCHEMA, "box": state.box.plain(), "netns_folder_is_ours": state.netns_folder_is_ours,
            "complete": state.complete, "daemons": daemons,
        },
    )  # fmt: skip


def read() -> State | None:
    """The saved state, or None. A file that cannot be read counts as none: it is removed like a stale one."""
    try:
        plain = cast("dict[str, Any]", read_json(FILE))
        daemons = {name: Daemon(pid, ticks) for name, (pid, ticks) in plain["daemons"].items()}
        return State(from_plain(plain["box"]), plain["netns_folder_is_ours"], plain["complete"], daemons)
    except (BadInput, KeyError, TypeError, ValueError):
        return None


def condition() -> Condition:
    """up: whole and alive. stale: something is there, but not a living cluster. down: nothing is there."""
    state = read()
    if state is not None and state.alive:
        return "up"
    return "stale" if FOLDER.exists() or network.spaces() else "down"


def living() -> State:
    """The state of the cluster that is up, or a sentence."""
    state = read()
    if state is None:
        raise BadInput("no cluster is up on this machine; start one: paceline cluster up --machines 2 --cores 1")
    if not state.alive:
        why = f"ended: {', '.join(state.lost)}" if state.lost else "its start was not finished"
        raise BadInput(
            f"the cluster on this machine is not alive ({why}); start it again: paceline cluster up {state.box.shape}"
        )
    return state
