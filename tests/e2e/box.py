"""The cluster in a box for tests: up once for all that use it, down afterwards. A machine can have one."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from paceline.base.errors import BadInput
from paceline.cluster import machines, needs, state
from paceline.launch.slurm import queue


def command(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "paceline", "cluster", *words], check=True, capture_output=True, timeout=60)


@dataclass(frozen=True)
class Box:
    num_machines: int

    def enter(self, name: str) -> list[str]:
        return machines.enter(name)

    @contextlib.contextmanager
    def cut(self, name: str) -> Iterator[None]:
        """A machine without its cable for the length of a block; afterwards the cluster is whole again."""
        machines.cut(name)
        try:
            yield
        finally:
            machines.mend(name)
            self.wait_until_whole()

    def wait_until_whole(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if queue.usable(None, cpus=1)[0] == self.num_machines and self.idle():
                return
            time.sleep(0.2)
        raise AssertionError("the machines did not come back")

    def idle(self) -> bool:
        argv = ["sinfo", "--noheader", "--Node", "--partition=main", "--format=%T"]
        found = subprocess.run(argv, env={**os.environ, **queue.cluster()}, capture_output=True, text=True).stdout
        return found.split() == ["idle"] * self.num_machines


@functools.cache
def claimed() -> IO[str]:
    """The machine's one box, for this test session until it ends: a second session on the machine waits, or says why not."""
    file = (Path(tempfile.gettempdir()) / "paceline-test-box.lock").open("w")
    for _ in range(600):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        time.sleep(0.1)
    file.close()
    pytest.fail("another test session on this machine uses the cluster in a box; there is one only", pytrace=False)


def needed() -> None:
    """Skips where there can be no box, with the reason. CI is root and has installed everything: there it is a failure."""
    try:
        needs.check(link=True, delay=False)
    except BadInput as error:
        if os.environ.get("CI") and needs.is_root():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    claimed()


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """For tests that make boxes of their own: the one that is up goes down, and is up again afterwards."""
    before = state.read()
    command("down")
    try:
        yield
    finally:
        command("down")
        if before is not None and before.complete:
            command("up", *before.box.shape.split())


@pytest.fixture(scope="session")
def box() -> Iterator[Box]:
    needed()
    command("down")
    command("up", "--machines", "2", "--cores", "2")
    yield Box(2)
    command("down")
