"""The parent's side of the warm process (`worker/zygote.py`): it is started here, asked to fork ranks, and ended with its block.

It belongs to one command. A process that outlived `paceline.run` would hold 200 MB in a user's own program that nobody
asked for.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any, Self

import psutil

from paceline.base import talk

_PATIENCE_S = 120.0  # for torch to be imported from a slow disk; then ranks are started without it
_CLOSE_S = 2.0


def possible() -> bool:
    """Linux only: elsewhere a fork without exec is not safe with the system's libraries, and the kernel does not end
    ranks with us."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


class Forked:
    """A process that the warm one forked for us, with the interface of a Popen: pid, poll, wait, returncode."""

    def __init__(self, pid: int, by: Resident) -> None:
        self.pid = pid
        self.by = by
        self.returncode: int | None = None

    @property
    def lost(self) -> bool:
        """Its exit code is unknown: the warm process ended first, and the kernel killed it too."""
        return self.by.gone and self.pid in self.by.unreported

    def poll(self) -> int | None:
        self.by.listen(0.0)
        return self.returncode

    def wait(self) -> int:
        """The warm process reports the end at once. If it does not, it is stopped or stuck: it is killed, and its
        children with it."""
        while self.returncode is None:
            if not self.by.listen(_CLOSE_S):
                self.by.kill()
        return self.returncode


class Resident:
    """One warm process, from its start to its end. Its messages are read whenever a caller needs to know something."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """It binds itself to us, first thing."""
        self._talk, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "paceline.worker", "zygote", str(theirs.fileno())], env=env,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self.ready = self.gone = False
        self.unreported: dict[int, Forked] = {}  # their end
        self._answers: dict[int, dict[str, Any]] = {}
        self._asked = 0

    @property
    def pid(self) -> int:
        return self._popen.pid

    def fileno(self) -> int:
        return self._talk.fileno()

    def listen(self, seconds: float) -> bool:
        """Take in what was said; False when nothing was within this time."""
        received = False
        while not self.gone and self._said_something(0.0 if received else seconds):
            received = True
            message = talk.receive(self._talk)
            if message is None:
                self._lost()
            else:
                self._take(message[0])
        return received or self.gone

    def _said_something(self, seconds: float) -> bool:
        poller = select.poll()
        poller.register(self._talk, select.POLLIN)
        return bool(poller.poll(int(seconds * 1000)))

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self.ready = True
        elif "answer" in message:
            self._answers[message["answer"]] = message
            if "forked" in message:  # its end may be the very next word
                message["child"] = self.unreported[message["forked"]] = Forked(message["forked"], self)
        else:
            self.unreported.pop(message["ended"]).returncode = message["code"]

    def _lost(self) -> None:
        """It is gone, and the kernel kills what it forked: a signal is all that can be said of them."""
        self.gone = True
        self._talk.close()
        self._popen.wait()
        for child in self.unreported.values():
            child.returncode = -signal.SIGKILL

    def until_ready(self) -> bool:
        while not self.ready and not self.gone:
            if not self.listen(_PATIENCE_S):
                self.kill()
        return self.ready and not self.gone

    def ask(self, message: dict[str, Any], files: list[int]) -> dict[str, Any] | None:
        """The answer; None when the process ended instead."""
        self._asked += 1
        number = self._asked
        try:
            talk.send(self._talk, {"id": number, **message}, files)
        except OSError:
            self.listen(_CLOSE_S)
            return None
        while number not in self._answers and not self.gone:
            if not self.listen(_PATIENCE_S):
                self.kill()
        return self._answers.pop(number, None)

    def family(self) -> list[psutil.Process]:
        """All processes that were forked, and all that those left behind: the warm process adopts the orphans of its
        descendants."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def kill(self) -> None:
        self._popen.kill()
        self._lost()

    def close(self) -> None:
        """It exits when the socket is closed. While it imports it does not read the socket, and has nothing to
        finish."""
        if self.gone:
            return
        if self.ready:
            self._talk.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_CLOSE_S)
        self.kill()


class Warm:
    """`with warmed() as warm`: nothing is started before it is needed, or before `start()`; a warm process that died is replaced."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.process: Resident | None = None
        self._useless = not possible()  # it cannot import torch, perhaps: a rank that is started will report why
        self.why_not = ""

    @property
    def started(self) -> bool:
        return self.process is not None and not self.process.gone

    def start(self) -> None:
        """Begin to import; nobody waits for it yet."""
        if not self.started and not self._useless:
            try:
                self.process = Resident(self._env)
            except OSError:  # no more processes, no memory: a rank that is started will say so
                self._useless = True

    def ready(self, *, graphs: bool = False) -> None:
        """Wait until a fork would take no longer than a fork."""
        if (process := self._awake()) is not None and graphs:
            process.ask({"graphs": True}, [])

    def fork(
        self, argv: tuple[str, ...], env: Mapping[str, str], out: IO[bytes], err: IO[bytes], *, graphs: bool
    ) -> Forked | None:
        """A forked process that does this job. None, with the reason in `why_not`, where it has to be started in the
        usual way."""
        process = self._awake()
        if process is None:
            self.why_not = "the warm process did not come up"
            return None
        try:
            here = os.open(".", os.O_RDONLY)
        except OSError as error:
            self.why_not = f"the current folder cannot be opened ({error.strerror})"
            return None
        try:
            request = {"job": argv[3], "folder": argv[4], "env": dict(env), "graphs": graphs}
            answer = process.ask(request, [out.fileno(), err.fileno(), here])
        finally:
            os.close(here)
        if answer is None or "refused" in answer:
            self.why_not = answer["refused"] if answer else "the warm process ended when it was asked"
            return None
        return answer["child"]

    def _awake(self) -> Resident | None:
        self.start()
        if self.process is None or self._useless:
            return None
        if not self.process.until_ready():
            self._useless = True
            return None
        return self.process

    def close(self) -> None:
        if self.process is not None:
            self.process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
