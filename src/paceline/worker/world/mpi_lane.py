"""The order of a group's operations, and the threads they run on. It knows when something runs, and nothing of what it does.

A blocking collective on a thread of its own is several times as fast as MPI's non-blocking one with a polling thread, and
a collective the caller would wait for anyway is fastest on the caller's own thread.
"""

from __future__ import annotations

import atexit
import os
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch._C._distributed_c10d import Work, _create_work_from_future  # pyright: ignore[reportAttributeAccessIssue]

from paceline.worker.world.mpi_buffers import Block

if TYPE_CHECKING:
    from mpi4py import MPI

Task = Callable[[], list[torch.Tensor]]
Done = torch.futures.Future[list[torch.Tensor]]


class Lane:
    """First in, first out, as every rank must do it: one at a time, in the order of the calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._queue: SimpleQueue[tuple[Task, Done] | None] = SimpleQueue()
        self._turn = threading.Lock()
        self._last: Done | None = None
        self._thread: threading.Thread | None = None

    def do(self, task: Task, *, waits: bool) -> Work:
        """Run `task` after those asked for before it. `waits`: the caller will do nothing until it is over."""
        if threading.current_thread() is self._thread:
            # Queued, it would wait for itself. Run at once, it would overtake the queue, and only on the ranks that are late.
            raise RuntimeError(
                "a collective was started inside another one's callback: the mpi backend cannot order them"
            )
        done: Done = torch.futures.Future()
        if waits and (self._last is None or self._last.done()):
            with self._turn:
                done.set_result(task())
        else:
            self._start()
            self._last = done
            self._queue.put((task, done))
        return _create_work_from_future(done)

    def close(self) -> None:
        """Wait for what was asked for and end the thread: one that outlives the interpreter takes the process down with SIGABRT."""
        atexit.unregister(self.close)
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            # A daemon that atexit closes: Python waits for other threads before it runs atexit, so it would wait for ever.
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            task, done = item
            try:
                with self._turn:
                    result = task()
            except BaseException:
                _give_up()
            done.set_result(result)  # callbacks run here, in order
            del item, task, done, result  # frees their tensors: the next operation may come much later


def _give_up() -> NoReturn:
    """The only honest end here: C++ does not see an exception set in a future, and would go on with wrong numbers."""
    from mpi4py import MPI

    try:
        traceback.print_exc()
    finally:
        MPI.COMM_WORLD.Abort(1)
        os._exit(1)  # MPICH's Abort may return for a moment


class Letter(Work):
    """One message to or from one rank. Nobody waits for it but who asks: it overtakes collectives, as both ends expect."""

    def __init__(self, request: MPI.Request, block: Block, *, arriving: bool) -> None:
        super().__init__()
        from mpi4py import MPI

        self._request, self._block, self._arriving = request, block, arriving
        self._status = MPI.Status()
        self._over = False
        self._asking = threading.Lock()  # MPI does not let two threads ask about one request

    def wait(self, timeout: Any = None) -> bool:  # MPI knows no timeouts
        with self._asking:
            if not self._over:
                self._request.Wait(self._status)
                self._finish()
        return True

    def is_completed(self) -> bool:
        if not self._asking.acquire(blocking=False):
            return self._over
        try:
            if not self._over and self._request.Test(self._status):
                self._finish()
            return self._over
        finally:
            self._asking.release()

    def is_success(self) -> bool:
        return self.is_completed()

    def result(self) -> list[torch.Tensor]:
        return list(self._block.tensors)

    def source_rank(self) -> int:
        return self._status.Get_source()

    _source_rank = source_rank

    def _finish(self) -> None:
        if self._arriving:
            self._block.store()
        self._over = True
