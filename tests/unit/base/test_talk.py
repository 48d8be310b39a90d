"""Two ends of a socket: whole lines and their files arrive, however long, and an end that is gone is said to be."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from paceline.base import talk


def test_lines_and_their_files_arrive_in_order(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    (tmp_path / "file").write_text("x")
    with ours, theirs, (tmp_path / "file").open("rb") as file:
        talk.send(ours, {"id": 1, "word": "a\nb"}, [file.fileno()])
        talk.send(ours, {"id": 2})
        message, files = talk.receive(theirs) or ({}, [])
        assert message == {"id": 1, "word": "a\nb"}
        assert os.read(files[0], 1) == b"x"
        os.close(files[0])
        assert talk.receive(theirs) == ({"id": 2}, [])
        ours.close()
        assert talk.receive(theirs) is None


def test_a_line_longer_than_a_socket_holds() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        long = {"env": "x" * 3_000_000}
        writer = threading.Thread(target=talk.send, args=(ours, long))
        writer.start()
        assert talk.receive(theirs) == (long, [])
        writer.join()


def test_an_end_that_goes_in_the_middle_of_a_line() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b'{"id":')
        ours.close()
        assert talk.receive(theirs) is None
