"""Knowing over the network, and not from files, that the others are alive: every rank keeps a connection to rank 0.

The kernel sends the heartbeats (TCP keep-alive), so a rank that computes for a minute without letting Python run is not taken
for dead. A connection that ends without a goodbye is a process that died; one that stops answering is a machine or a link.
gloo itself would wait for half an hour, and MPI for ever.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any

from paceline.base.errors import RunFailed
from paceline.worker.world.env import Identity

SILENCE_S = 11  # idle 3 s, then 4 probes 2 s apart
_IDLE_S, _EVERY_S, _TIMES = 3, 2, 4
_GOODBYE = b"bye\n"
_KEY = "paceline/pulse"

# Called from a watching thread with kind and sentence; it ends the process.
OnLoss = Callable[[str, str], None]


def _keep_alive(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _IDLE_S), ("TCP_KEEPINTVL", _EVERY_S), ("TCP_KEEPCNT", _TIMES)):
        if hasattr(socket, name):  # macOS calls the first one otherwise, and has its defaults
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # what we sent and nobody acknowledged counts too
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000)


class Pulse:
    """Open from joining to leaving; `close` says goodbye, so that an orderly end is no loss."""

    def __init__(self, identity: Identity, on_loss: OnLoss) -> None:
        self._identity, self._on_loss = identity, on_loss
        self._lines: list[socket.socket] = []
        self._server: socket.socket | None = None
        self._closing = threading.Event()

    def start(self, store: Any, *, address: str) -> None:
        """`store` is the world's own; through it rank 0 says where it listens, and with which token one is let in."""
        if self._identity.rank == 0:
            token = secrets.token_hex(16)
            self._server = socket.create_server((address, 0))
            port = self._server.getsockname()[1]
            threading.Thread(target=self._welcome, args=(token,), daemon=True).start()
            store.set(_KEY, json.dumps({"address": address, "port": port, "token": token}))
        else:
            where = json.loads(store.get(_KEY))
            line = socket.create_connection((where["address"], where["port"]), timeout=15)
            hello = {"token": where["token"], "rank": self._identity.rank, "host": self._identity.host}
            line.sendall(json.dumps(hello).encode() + b"\n")
            answer = json.loads(line.makefile("rb").readline(4096) or b"{}")
            if "host" not in answer:
                raise RunFailed("rank 0 did not answer the first heartbeat", kind="launch")
            self._watch(line, rank=0, host=str(answer["host"]))

    def _welcome(self, token: str) -> None:
        assert self._server is not None
        waiting = self._identity.world_size - 1
        while waiting:
            try:
                line, _ = self._server.accept()
            except OSError:
                return  # closed
            with contextlib.suppress(OSError, ValueError, KeyError):
                line.settimeout(5)
                hello = json.loads(line.makefile("rb").readline(4096))
                if hello["token"] == token:
                    line.sendall(json.dumps({"host": self._identity.host}).encode() + b"\n")
                    self._watch(line, rank=int(hello["rank"]), host=str(hello["host"]))
                    waiting -= 1
                    continue
            line.close()

    def _watch(self, line: socket.socket, *, rank: int, host: str) -> None:
        line.settimeout(None)
        _keep_alive(line)
        self._lines.append(line)
        threading.Thread(target=self._listen, args=(line, rank, host), daemon=True).start()

    def _listen(self, line: socket.socket, rank: int, host: str) -> None:
        with line:
            try:
                received = line.recv(16)
            except ConnectionResetError:
                received = b""
            except OSError as error:
                if not self._closing.is_set():
                    me = self._identity
                    self._on_loss(
                        "lost",
                        f"{me.host} (rank {me.rank}) and {host} (rank {rank}) have lost each other ({error.strerror}, nothing heard "
                        f"for {SILENCE_S} s): a machine or its link is down",
                    )
                return
            if received != _GOODBYE and not self._closing.is_set():
                self._on_loss("peer", f"rank {rank} on {host} went away without a word")

    def close(self) -> None:
        """Called when this rank's work is done; the others may still be at theirs."""
        self._closing.set()
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # closing alone does not wake the thread that waits in accept
            self._server.close()
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.sendall(_GOODBYE)
                line.shutdown(socket.SHUT_WR)
