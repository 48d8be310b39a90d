"""What every test stands on: nothing may leak, the command line is one fixture, the full data is another. No test logic here.

A leak is an environment variable, a process, a non-daemon thread or a process group that outlives its test. It fails
the test that made it, because the test it would break is a different one, on a different day.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
GRACE_S = 3.0  # a process that has been told to go may need a moment to be gone

# Every process a test starts inherits this, so one that lost its parent is still found, and a test run beside ours is not.
TAG_NAME, TAG = "PACELINE_TEST_TAG", uuid.uuid4().hex
os.environ[TAG_NAME] = TAG
# What is compiled is kept for the whole test run, and beside what the user keeps.
os.environ.setdefault("PACELINE_CACHE", os.path.join(tempfile.gettempdir(), f"paceline-tests-{os.getuid()}"))

# pytest writes this one itself, before each phase of each test.
NOT_OURS = {"PYTEST_CURRENT_TEST"}
# Folders whose tests start processes: here a leaked one may be nobody's child any more, so all processes are looked at.
STARTS_PROCESSES = {"contract", "dist", "parity", "e2e", "gpu"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.path.relative_to(ROOT).parts:
            item.add_marker(pytest.mark.gpu)


def _tagged() -> Iterator[psutil.Process]:
    """Processes that carry our tag, whoever their parent is now. Linux only; elsewhere children are all we see."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if folder.name != str(os.getpid()) and f"{TAG_NAME}={TAG}".encode() in (folder / "environ").read_bytes():
                yield psutil.Process(int(folder.name))


def _processes(*, orphans: bool) -> set[psutil.Process]:
    found = set(psutil.Process().children(recursive=True))
    if orphans:
        found.update(_tagged())
    alive: set[psutil.Process] = set()
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.add(process)
    return alive


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.daemon}


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_OURS}


def _in_process_group() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()


def _line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    return f"process {process.pid}"


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves something behind. Longer-lived fixtures (a browser) are set up before it, and are not its business."""
    orphans = bool(STARTS_PROCESSES & set(request.node.path.parts))
    environment, processes, threads = _environment(), _processes(orphans=orphans), _threads()
    yield
    leaks: list[str] = []

    after = _environment()
    changed = sorted(name for name in environment.keys() | after.keys() if environment.get(name) != after.get(name))
    leaks += [f"environment variable {name}" for name in changed]
    for name in changed:  # put back, so that one leak is one failure
        if name in environment:
            os.environ[name] = environment[name]
        else:
            del os.environ[name]

    deadline = time.monotonic() + GRACE_S
    if orphans:
        time.sleep(0.03)  # a process in the middle of its exec has no environment to be known by
    while (late := _processes(orphans=orphans) - processes) and time.monotonic() < deadline:
        time.sleep(0.02)
    leaks += [_line(process) for process in late]
    for process in late:
        with contextlib.suppress(psutil.Error):
            process.kill()

    for thread in _threads() - threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            leaks.append(f"thread {thread.name}")
    if _in_process_group():
        leaks.append("an initialised torch process group")
        sys.modules["torch"].distributed.destroy_process_group()
    if leaks:
        pytest.fail("the test left behind: " + "; ".join(leaks), pytrace=False)


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def paceline(tmp_path: Path) -> Command:
    """`paceline("run", "features", "steps=5")`: the command line as a user has it, in an empty folder, with its output as text."""

    def call(
        *words: str, timeout_s: float = 100, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "paceline", *map(str, words)]
        with subprocess.Popen(
            command, cwd=cwd or tmp_path, env={**os.environ, **(env or {})}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:  # a timeout, or pytest-timeout's own: the whole family goes, not just the parent
                with contextlib.suppress(psutil.NoSuchProcess):
                    for child in psutil.Process(process.pid).children(recursive=True):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            child.kill()
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    return call


@pytest.fixture(scope="session")
def mnist_full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds MNIST/raw with all 70,000 images, unpacked once a session. It lies outside the repository."""
    unpack = SHARED / "data" / "unpack"
    if os.environ.get("CI"):
        pytest.skip("CI uses nothing outside the clone; the full MNIST is in ../shared")
    if not unpack.exists():
        pytest.skip("the full MNIST is not here: ../shared/data/unpack does not exist")
    folder = tmp_path_factory.mktemp("mnist")
    subprocess.run([sys.executable, str(unpack), "mnist", str(folder)], check=True, capture_output=True)
    return folder
