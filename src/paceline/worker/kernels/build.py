"""Compiles a C++ source of ours with the machine's own compiler at first use, loads it, and keeps it for every later run.

The name of the kept library is a hash of everything it depends on, so a changed source, compiler or processor makes
another one. No torch headers: a source takes plain pointers, compiles in seconds, and works with every version of
torch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import re
import shutil
import subprocess
from pathlib import Path

from paceline.base.cache import cache_folder
from paceline.base.errors import RunFailed
from paceline.base.files import unfinished

_COMPILERS = ("g++", "clang++", "c++")
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-march=native", "-fno-math-errno")
_OWN = {"conv": ("-fopenmp",)}  # not for all: not every compiler brings it
_PATIENCE_S = 300
_HERE = Path(__file__).parent
_INCLUDE = re.compile(
    r'^#include "(.+)"', re.MULTILINE
)  # of ours; the system's are the compiler's, which is in the name too


def compiler() -> str | None:
    """The compiler that would be used; None where there is none."""
    return next((program for name in _COMPILERS if (program := shutil.which(name))), None)


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """The library compiled from `<name>.cpp` in this folder, or `RunFailed` with the reason why there is none."""
    program = compiler()
    if program is None:
        raise RunFailed(
            f"our own {name} kernels are compiled at first use, and there is no C++ compiler here ({', '.join(_COMPILERS)}): install "
            "one (apt install g++)",
            kind="mismatch",
        )
    flags = (*_FLAGS, *_OWN.get(name, ()))
    try:
        path = cache_folder("kernels") / f"{name}-{_stamp(sources(name), program, flags)}.so"
        if not path.exists():
            _compile(_HERE / f"{name}.cpp", program, flags, path)
        return ctypes.CDLL(str(path))
    except OSError as error:  # a folder that cannot be written, or from which nothing may be run
        raise RunFailed(
            f"our own {name} kernels could not be kept or loaded ({error}): name a folder for it in PACELINE_CACHE, or use kernel=torch "
            "and messages=backend",
            kind="disk",
        ) from error


def sources(name: str, folder: Path = _HERE) -> tuple[bytes, ...]:
    """`<name>.cpp` and the headers of ours that it includes, directly or through another one: a change in any makes another library."""
    texts: dict[str, bytes] = {}
    waiting = [f"{name}.cpp"]
    while waiting:
        file = waiting.pop()
        if file not in texts:
            texts[file] = (folder / file).read_bytes()
            waiting += _INCLUDE.findall(texts[file].decode())
    return tuple(texts[file] for file in sorted(texts))


def _compile(source: Path, program: str, flags: tuple[str, ...], path: Path) -> None:
    """Written under a temporary name until it is complete: several ranks may compile it at the same time."""
    with unfinished(path) as out:
        asked = [program, *flags, str(source), "-o", str(out)]
        done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S)
        if done.returncode:
            said = next(
                (line for line in done.stderr.decode(errors="replace").splitlines() if "error" in line), "no word"
            )
            raise RunFailed(f"our own kernels could not be compiled by {program}: {said[:300]}", kind="mismatch")


def _stamp(texts: tuple[bytes, ...], program: str, flags: tuple[str, ...]) -> str:
    version = subprocess.run([program, "--version"], capture_output=True, timeout=_PATIENCE_S).stdout
    parts = (*texts, version, " ".join(flags).encode(), platform.machine().encode(), _processor())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _processor() -> bytes:
    """The instruction sets of this processor: a cache folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return platform.processor().encode()
    return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
