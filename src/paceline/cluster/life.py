"""Up and down: the order in which a box is made, and how every trace of it is removed.

What a failed, interrupted or killed start left behind is found by searching the system, not by a list.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from paceline.base.errors import BadInput
from paceline.base.files import locked, remove_file, remove_tree
from paceline.cluster import daemons, network, processes, state
from paceline.cluster.box import FOLDER, SUBNET, Box

Say = Callable[[str], None]
LOCK = FOLDER.with_suffix(".lock")  # not inside the folder: it is held while the folder is made and removed


@contextmanager
def _alone() -> Generator[None]:
    busy = "another `paceline cluster up` or `down` is at work on this machine; wait for it to end, then ask again"
    with locked(LOCK, why=busy):
        try:
            yield
        finally:
            if not FOLDER.exists():
                remove_file(LOCK)
                if not any(FOLDER.parent.iterdir()):
                    remove_tree(FOLDER.parent)


def up(box: Box, say: Say) -> bool:
    """Make the box and wait until Slurm answers; False when it was up already. What fails or is stopped half-way is taken down."""
    with _alone():
        before = state.read()
        if before is not None and before.alive:
            if before.box == box:
                return False
            raise BadInput(
                f"{box.shape}: a cluster of another shape is up on this machine ({before.box.shape}), and there can be "
                "one only; take it down first: paceline cluster down"
            )
        if state.condition() == "stale":
            say("cleaning up what an earlier start left")
            _clear()
        try:
            _make(box, say)
        except BaseException:  # Ctrl-C too: half a cluster is no use to anybody
            _clear()
            say("it did not come up; nothing of it is left")
            raise
    return True


def _make(box: Box, say: Say) -> None:
    new = state.State(box, netns_folder_is_ours=not network.NETNS.exists())
    state.write(new)  # first of all, so that a killed start is known from its first moment
    say(f"network: {box.machines} machines on {SUBNET}")
    network.make(box)
    daemons.write_files(box)
    say("munge: with a key of its own")
    daemons.start_munge()
    say("Slurm: slurmctld, and a slurmd in every machine")
    daemons.start_slurm(box)
    say("waiting until every machine is idle")
    daemons.wait_until_idle(box)
    state.write(replace(new, complete=True, daemons=daemons.running(box)))


def down() -> bool:
    """Take everything away, jobs included; False when there was nothing."""
    processes.check_outside()
    with _alone():
        return _clear()


def _clear() -> bool:
    """Processes first: without them everything else can be removed, and nothing writes into the folder any more."""
    before = state.read()
    ended = processes.end_all()
    unplugged = network.remove(folder_too=before is not None and before.netns_folder_is_ours)
    if before is not None:
        _sweep(before.box)
    had_folder = FOLDER.exists()
    if had_folder:
        remove_tree(FOLDER)
    return ended or unplugged or had_folder


def _sweep(box: Box) -> None:
    """Open MPI keeps a folder for each machine in /tmp, which is on the disk that all share."""
    for machine in box.members:
        if machine.name != socket.gethostname():
            for path in Path("/tmp").glob(f"ompi.{machine.name}.*"):
                remove_tree(path)
