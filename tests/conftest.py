"""What every test stands on: its own random numbers, nothing leaked, commands in a process or in this one. No test logic here.

A leak is an environment variable, a process, a non-daemon thread or a process group that outlives its test. It fails
the test that made it, because the test it would break is a different one, on a different day.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

if TYPE_CHECKING:  # a test that fails to import the product must say so itself
    from paceline.launch.warm import Warm

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
GRACE_S = 3.0  # a process that has been told to go may need a moment to be gone

# Every process a test starts inherits this, so one that lost its parent is still found, and a test run beside ours is not.
TAG_NAME, TAG = "PACELINE_TEST_TAG", uuid.uuid4().hex
os.environ[TAG_NAME] = TAG
# What is compiled is kept for the whole test run, and beside what the user keeps.
os.environ.setdefault("PACELINE_CACHE", os.path.join(tempfile.gettempdir(), f"paceline-tests-{os.getuid()}"))

# `make test &` in a script ignores Ctrl-C, and so would every process a test starts, among them those it interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# As every rank does: a processor that announces AMX may not have it. Most tests compute in this process.
if "amx_tile" in (Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""):
    from paceline.worker.world.amx import avoid_broken_amx

    avoid_broken_amx()

# pytest writes this one itself, before each phase of each test.
NOT_OURS = {"PYTEST_CURRENT_TEST"}
# Folders whose tests start processes: here a leaked one may be nobody's child any more, so all processes are looked at.
STARTS_PROCESSES = {"contract", "dist", "parity", "e2e", "gpu"}


# ---- which test runs where, and when ----

# Files in which a test takes seconds and shares nothing with the next: each test goes to whichever process is free.
SPREAD = ("e2e/test_bad_input.py", "e2e/test_docs.py", "e2e/test_interruptions.py", "parity/test_accelerate.py")
# Long tests come first, so that small ones fill the end, when one process has nothing left to do. Slurm's mostly wait.
LONGEST_FIRST = ("e2e/test_slurm.py", "parity", "dist", "e2e", "contract")


def _folder(item: pytest.Item | pytest.Collector) -> str:
    """`unit` of tests/unit/..., and `src` of a doctest."""
    parts = item.path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "tests" else parts[0]


def _file(item: pytest.Item) -> str:
    return "/".join(item.path.relative_to(ROOT).parts[1:])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _folder(item) == "gpu":
            item.add_marker(pytest.mark.gpu)
    if not config.pluginmanager.has_plugin("randomly"):
        rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: min(rank.get(name, len(rank)) for name in (_folder(item), _file(item))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests run in one process, in their order, and what they share (a world of ranks, say) is made once.

    xdist's own groups do not do this: with pytest 9.2 every process gets some of a group (pytest-xdist issue 1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return nodeid if file.endswith(SPREAD) else file

    config.option.loadscopereorder = False  # by number of tests; ours are sorted by how long they take
    return ByFile(config, log)


# ---- random numbers ----


def _seed(name: str) -> None:
    """Everything that draws without being told from where begins at a number made of this name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
    random.seed(number)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(number)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(number)


def _torch_settings() -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """What torch keeps for the whole process: the value now, and how it is put back. Empty before torch is imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    algorithms = (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())
    return {
        "threads": (torch.get_num_threads(), torch.set_num_threads),
        "dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "gradients": (torch.is_grad_enabled(), torch.set_grad_enabled),
        "algorithms": (algorithms, lambda was: torch.use_deterministic_algorithms(was[0], warn_only=was[1])),
        "products": (torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision),
        "tf32": (matmul.allow_tf32, lambda was: setattr(matmul, "allow_tf32", was)),
        "tf32 of convolutions": (cudnn.allow_tf32, lambda was: setattr(cudnn, "allow_tf32", was)),
        "cudnn's trials": (cudnn.benchmark, lambda was: setattr(cudnn, "benchmark", was)),
        "cudnn's order": (cudnn.deterministic, lambda was: setattr(cudnn, "deterministic", was)),
    }


@pytest.fixture(autouse=True)
def own_numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test's random numbers depend on its name alone, and what it does to torch's settings ends with it."""
    before = _torch_settings()
    _seed(request.node.nodeid)
    yield
    for name, (now, _) in _torch_settings().items():
        if name in before and before[name][0] != now:
            was, put_back = before[name]
            put_back(was)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Any:
    """What several tests share is drawn from numbers of its own as well: which of them asks first must not matter."""
    if fixturedef.scope != "function":
        _seed(f"{fixturedef.baseid}::{fixturedef.argname}::{getattr(request, 'param', None)}")
    return (yield)


# ---- leaks ----


def _tagged() -> Iterator[psutil.Process]:
    """Processes that carry our tag, whoever their parent is now. Linux only; elsewhere children are all we see."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if folder.name != str(os.getpid()) and f"{TAG_NAME}={TAG}".encode() in (folder / "environ").read_bytes():
                yield psutil.Process(int(folder.name))


def _processes(*, orphans: bool) -> set[psutil.Process]:
    processes = set(psutil.Process().children(recursive=True))
    if orphans:
        processes.update(_tagged())
    alive: set[psutil.Process] = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.add(process)
    return alive


def _late(before: set[psutil.Process], shared: Warm | None, *, orphans: bool) -> set[psutil.Process]:
    """Those that were not there before; the warm process stays for the next test, but nothing that was forked from it does."""
    stays = shared.process.pid if shared is not None and shared.started and shared.process is not None else None
    return {process for process in _processes(orphans=orphans) - before if process.pid != stays}


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
    shared: Warm | None = request.getfixturevalue("shared_warm") if orphans else None
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
    while (late := _late(processes, shared, orphans=orphans)) and time.monotonic() < deadline:
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


# ---- processes and commands ----


@pytest.fixture(scope="session")
def shared_warm() -> Iterator[Warm]:
    """One process with torch imported, for all runs of these tests that may be forked: importing torch takes longer than most of them.

    It is started by the first run that wants it, with the environment of the test session.
    """
    from paceline.launch.supervise import warmed

    with warmed() as warm:
        yield warm


@pytest.fixture(autouse=True, scope="module")
def runs_are_forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """`paceline.run` in this process forks its ranks from `shared_warm`, for what a file's tests share too."""
    if not STARTS_PROCESSES & set(request.node.path.parts):
        yield
        return
    warm = request.getfixturevalue("shared_warm")
    with pytest.MonkeyPatch.context() as patch:
        # No study is made on a GPU, whose machine may not have what studies need (ruamel.yaml).
        for name in ("run",) if _folder(request.node) == "gpu" else ("run", "study"):
            patch.setattr(f"paceline.commands.{name}.warmed", lambda: contextlib.nullcontext(warm))
        yield


@pytest.fixture(autouse=True)
def starts_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test about how processes start (`own_start`) has what a user has: a warm process for each command."""
    if not request.node.get_closest_marker("own_start"):
        yield
        return
    from paceline.launch.supervise import warmed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paceline.commands.run.warmed", warmed)
        yield


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


@pytest.fixture
def paceline_here(tmp_path: Path, shared_warm: Warm, monkeypatch: pytest.MonkeyPatch) -> Command:
    """As `paceline`, in this process and beside `shared_warm`: for what a command says and leaves, not for how it starts or ends.

    Nothing that a command started may outlive it; the warm process itself is ours.
    """
    from paceline import cli

    def call(
        *words: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        command = ["paceline", *map(str, words)]
        said, complained = (
            io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=how) for how in ("strict", "backslashreplace")
        )
        handlers = {word: signal.getsignal(word) for word in (signal.SIGTERM, signal.SIGHUP)}
        shared_warm.ready()  # a command's timeout is for the command
        with monkeypatch.context() as patch, open(os.devnull) as nothing:
            patch.chdir(cwd or tmp_path)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            for name, value in {"argv": command, "stdin": nothing, "stdout": said, "stderr": complained}.items():
                patch.setattr(sys, name, value)
            patch.setattr("paceline.cli.training.age_s", lambda: 0.0)  # this process is older than the command
            try:
                cli.main()
                code = 0
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else int(left.code is not None)
            finally:
                for word, handler in handlers.items():
                    signal.signal(word, handler)
                for stream in (said, complained):
                    stream.flush()
        out, err = (stream.buffer.getvalue().decode() for stream in (said, complained))  # pyright: ignore[reportAttributeAccessIssue]
        assert shared_warm.process is None or shared_warm.process.family() == [], "a process outlived the command"
        return subprocess.CompletedProcess(command, code, out, err)

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
