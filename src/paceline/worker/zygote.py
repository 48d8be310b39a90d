"""The warm process: it has imported torch and nothing of the user's, and ranks are forked from it. It trains nothing itself.

A fork copies one thread and no GPU: so this process must never have a second thread, nor have touched a GPU. Both are looked at
before every fork; where they are not so it refuses, and the parent starts that process from nothing, as without us.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.base import talk
from paceline.base.lifeline import adopt_orphans, bound, die_with_parent
from paceline.records.events import FORKED
from paceline.worker.rank import leave_now
from paceline.worker.world.env import become, supervisor, threads_asked, variables

Main = Callable[..., None]  # a job's own entry: worker/__main__.py's `main`
_LIBRARIES = ("torch", "torch._dynamo", "paceline.worker.training")  # the last imports all of the worker
_FOR_GRAPHS = ("torch._inductor.compile_fx", "torch.fx.experimental.proxy_tensor")
# numpy's OpenBLAS makes its threads when it is loaded; under each of these names, by how it was built.
_SET_THREADS = ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads")
_GPUS = ("/dev/nvidiactl", "/dev/kfd")  # what the drivers of NVIDIA and AMD show
_NOT_INITIALIZED = 3  # what libcuda answers before anybody called cuInit


def load(names: tuple[str, ...]) -> None:
    """Import with the garbage collector off, then freeze what was made: a rank that collected it would write to its pages, and so copy
    them."""
    gc.disable()
    for name in names:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


def warm(*, for_graphs: bool) -> None:
    """What each process would do by itself: imports; for graphs also what torch's compiler finds out once in every process, by
    trying the machine's C++ compiler (a second, the first time ten and more) and by reading its own source (a quarter of one). Not on a
    machine with a GPU: importing the compiler asks for it (seen with torch 2.11 on an H200), and whoever asked can fork nothing."""
    load(_LIBRARIES)
    if for_graphs and not any(Path(device).exists() for device in _GPUS):
        load(_FOR_GRAPHS)
        importlib.import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
        importlib.import_module("torch._inductor.codecache").torch_key()
        gc.freeze()


def why_not() -> str | None:
    """Why nothing may be forked from this process as it is now."""
    if len(threads := _threads()) != 1:
        return f"the warm process has {len(threads)} threads ({', '.join(threads)}), and a fork copies one"
    if _touched_gpu():
        return "the warm process has touched a GPU, which a fork cannot share"
    return None


def _threads() -> list[str]:
    """The names of this process's threads; one that ends meanwhile is left out."""
    names: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text().strip())
    return names


def _touched_gpu() -> bool:
    """Whether anybody called cuInit here; the library itself knows, where it is loaded at all."""
    if not _loaded("libcuda.so"):
        return False
    count = ctypes.c_int()
    return ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count)) != _NOT_INITIALIZED


def _loaded(name: str) -> list[str]:
    """Paths of the libraries of this process with this in their name."""
    lines = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    return sorted({words[5] for words in lines if len(words) == 6 and name in words[5].rpartition("/")[2]})


def _take_threads() -> None:
    """Set the numbers of threads from the environment: libraries read it when they are loaded, and here they were loaded before."""
    torch: Any = importlib.import_module("torch")
    if asked := threads_asked("OMP_NUM_THREADS"):
        torch.set_num_threads(asked)
    cores = len(os.sched_getaffinity(0))
    asked = threads_asked("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS") or cores
    for path in _loaded("openblas"):
        library = ctypes.CDLL(path)
        name = next((name for name in _SET_THREADS if hasattr(library, name)), None)
        if name is not None and min(asked, cores) > 1:
            library[name](min(asked, cores))


@dataclass(slots=True)
class Zygote:
    """The loop: a request is answered, an end is reported, and when the parent is gone so are we; our children die with us."""

    parent: socket.socket
    main: Main
    said: int  # what was written while importing: each child's log begins with it, as a started one's does
    made: dict[str, str]  # variables that libraries set while they were imported, as they would have in a started one
    ends: tuple[socket.socket, socket.socket] = field(default_factory=socket.socketpair)
    bind: Callable[[], None] = field(default_factory=bound)
    graphs: bool = False
    forked: set[int] = field(default_factory=set[int])  # other children that we reap are orphans, and are not reported

    def serve(self) -> None:
        for end in self.ends:
            end.setblocking(False)
        signal.set_wakeup_fd(self.ends[1].fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poller = select.poll()
        for heard in (self.parent, self.ends[0]):
            poller.register(heard, select.POLLIN)
        talk.send(self.parent, {"ready": os.getpid()})
        while True:
            ready = [number for number, _ in poller.poll()]
            if self.ends[0].fileno() in ready:
                self.ends[0].recv(4096)
                self._reap()
            if self.parent.fileno() in ready:
                self._answer()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.forked:
                self.forked.remove(pid)
                self._tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            talk.send(self.parent, message)
        except OSError:  # the parent is gone, so this process ends too
            os._exit(0)

    def _answer(self) -> None:
        request = talk.receive(self.parent)
        if request is None:
            os._exit(0)
        asked, files = request
        if asked["graphs"] and not self.graphs:
            self._warm_for_graphs()
            self.graphs = True
        if "job" not in asked:
            self._tell({"answer": asked["id"]})
            return
        if (why := why_not()) is not None:
            self._tell({"answer": asked["id"], "refused": why})
        else:
            self._fork(asked, files)
        for number in files:
            os.close(number)

    @staticmethod
    def _warm_for_graphs() -> None:
        """Where that fails, a rank does it by itself, and its own words say what is wrong."""
        try:
            warm(for_graphs=True)
        except Exception:
            traceback.print_exc()
        sys.stdout.flush()  # or every child would write it
        sys.stderr.flush()

    def _fork(self, asked: dict[str, Any], files: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._tell({"answer": asked["id"], "refused": f"it cannot fork ({error.strerror})"})
            return
        if pid == 0:
            self._child(asked, files)
        self.forked.add(pid)
        self._tell({"answer": asked["id"], "forked": pid})

    def _child(self, asked: dict[str, Any], files: list[int]) -> None:
        """Everything a started process has of its own; then its job. It never comes back from here."""
        code = 1
        try:
            self.bind()  # before anything else: until then nobody ends it when we are killed
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            out, err, folder = files
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.fchdir(folder)
            os.write(2, os.pread(self.said, os.fstat(self.said).st_size, 0))
            for number in (*files, self.said):
                os.close(number)
            for end in (self.parent, *self.ends):
                end.close()
            become({**self.made, **asked["env"]})
            importlib.import_module("paceline.worker.world.seed").fresh()
            _take_threads()
            sys.argv[1:] = [asked["job"], asked["folder"]]
            self.main(asked["job"], asked["folder"], start=FORKED)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            leave_now(code)


def serve(number: str, main: Main) -> None:
    """`number`: the socket's, inherited from the parent."""
    parent = socket.socket(fileno=int(number))
    parent.set_inheritable(False)
    die_with_parent(supervisor())
    adopt_orphans()
    said = os.memfd_create("said")
    os.dup2(said, 1)
    os.dup2(said, 2)
    before = variables()
    warm(for_graphs=False)
    made = {name: value for name, value in variables().items() if name not in before}
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # what is still in a buffer would be written by every child
    Zygote(parent, main, said, made).serve()
