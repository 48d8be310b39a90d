"""A task that leaves something behind, changes what all share, or tells what it finds, as `how` says; otherwise a good one."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch
from good import Good

DRAWN = [random.random(), float(np.random.rand()), float(torch.rand(()))]  # while the file is imported


def _openblas():
    """How many threads numpy's products have, where its library can be asked."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads"):
            if hasattr(library, name):
                return library[name]()
    return None


def _daemon():
    """As old programs do it: forked twice, in a session of its own, and never a program that could be known by its variables."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(1)
            time.sleep(600)
        os._exit(0)


def _tell():
    found = {
        "env": dict(os.environ), "cwd": str(Path.cwd()), "argv": sys.argv[1:], "main": sys.modules["__main__"].__spec__.name,
        "leads": os.getsid(0) == os.getpid(), "stdin": os.readlink("/proc/self/fd/0"),
        "torch": torch.get_num_threads(), "openblas": _openblas(),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)],
        "files": sorted(os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()),
        "drawn": DRAWN,
    }  # fmt: skip
    print(json.dumps(found), flush=True)


def _patch():
    torch.nn.Linear.forward = lambda self, x: x @ self.weight.T


HOW = {
    "good": lambda: None,
    "tells": _tell,
    "kills": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashes": lambda: ctypes.string_at(0),
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "environ": lambda: os.environ.update(PYTHONPATH="/nowhere", OMP_NUM_THREADS="7", PACELINE_RANK="5"),
    "patches": _patch,
    "thread": lambda: threading.Thread(target=time.sleep, args=(600,)).start(),
    "child": lambda: subprocess.Popen(["sleep", "600"], start_new_session=True),
    "daemon": _daemon,
    "forker": lambda: os.kill(os.getppid(), signal.SIGKILL),
}


class Unruly(Good):
    def __init__(self, how: str = "good") -> None:
        self.how = how

    def train_data(self):
        if "PACELINE_RANK" in os.environ:  # in a run, and not where the task is only looked at
            HOW[self.how]()
        return super().train_data()
