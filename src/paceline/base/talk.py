"""Messages between two of our processes over an inherited socket: a JSON line each way, and open files with it. Their
meaning is not known here."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

_MOST_FILES = 8


def send(talk: socket.socket, message: dict[str, Any], files: Sequence[int] = ()) -> None:
    """The files travel with the line's first byte, so that they arrive with it."""
    line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    socket.send_fds(talk, [line[:1]], list(files))
    talk.sendall(line[1:])


def receive(talk: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Waits for the next line, and returns it with the files that came along, which the caller closes. None: the other
    side is gone. Each side answers before it is asked again, except messages without files, so files are never read
    together with another line."""
    try:
        head, files, _, _ = socket.recv_fds(talk, 1, _MOST_FILES)
        line = bytearray(head)
        while line and not line.endswith(b"\n"):
            # Peeked at first: what comes behind the line is the next one's.
            seen = talk.recv(65536, socket.MSG_PEEK)
            end = seen.find(b"\n") + 1 or len(seen)
            if not seen:
                return None
            line += talk.recv(end)
    except ConnectionError:
        return None
    return (json.loads(line), files) if line else None
