"""Which machine, versions and source produced a run. It may ask `git`; it never records the environment, which holds secrets."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from paceline.spec.host import here


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor() or "unknown"
    return platform.processor() or platform.machine()


def source_state(folder: Path) -> dict[str, Any]:
    """The commit the user's code stands at, and whether files differ from it."""
    commit = _git(folder, "rev-parse", "HEAD")
    dirty = _git(folder, "status", "--porcelain")
    return {"commit": commit, "changed": bool(dirty) if dirty is not None else None}


def _ours(program: str) -> bool:
    """Our own command line; the user's program, which may be called with secrets, is none of our business."""
    return Path(program).name == "paceline" or program.endswith("paceline/__main__.py")


def take(source: Path) -> dict[str, Any]:
    host = here()
    return {
        "schema": 1,
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": host.cores,
        "memory_bytes": host.memory_bytes,
        "gpus": host.gpus,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("paceline", "torch", "numpy")},
        "git": source_state(source),
        "argv": sys.argv if _ours(sys.argv[0]) else None,
    }
