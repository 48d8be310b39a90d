"""Heartbeats between two ranks in one process: an orderly goodbye is no loss, a connection that breaks is one."""

from __future__ import annotations

import socket
import threading

import torch.distributed as dist

from paceline.worker.world.env import Identity
from paceline.worker.world.pulse import Pulse


class Losses:
    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self.event = threading.Event()

    def __call__(self, kind: str, why: str) -> None:
        self.found.append((kind, why))
        self.event.set()


def pair() -> tuple[Pulse, Pulse, Losses, Losses]:
    store = dist.HashStore()
    losses = Losses(), Losses()
    pulses = [Pulse(Identity(rank, 2, 0, "srun", f"node{rank}"), losses[rank]) for rank in range(2)]
    for pulse in pulses:
        pulse.start(store, address="127.0.0.1")
    return pulses[0], pulses[1], *losses


def test_goodbye_is_no_loss() -> None:
    head, other, *losses = pair()
    other.close()
    head.close()
    assert not any(loss.event.wait(0.3) for loss in losses)


def test_a_rank_that_dies_is_missed_by_name() -> None:
    head, other, at_head, _ = pair()
    while not head._lines:  # the head lets it in on a thread of its own
        threading.Event().wait(0.01)
    other._closing.set()  # its own thread must not call this a loss
    for line in other._lines:
        line.shutdown(socket.SHUT_RDWR)
    assert at_head.event.wait(5)
    assert at_head.found == [("peer", "rank 1 on node1 went away without a word")]
    head.close()


def test_a_stranger_is_not_let_in() -> None:
    """Without the token of the run a connection is closed, and never watched."""
    store = dist.HashStore()
    loss = Losses()
    head = Pulse(Identity(0, 2, 0, "srun", "node0"), loss)
    head.start(store, address="127.0.0.1")
    assert head._server is not None
    with socket.create_connection(head._server.getsockname()) as line:
        line.sendall(b'{"token": "guessed", "rank": 1, "host": "x"}\n')
        line.settimeout(5)
        assert line.recv(10) == b"", "hung up"
    head.close()
    assert not loss.found
