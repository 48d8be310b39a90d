"""What a task reads while the describe job looks into it: files and folders by Python's audit events, files that other code opens by the
kernel's, variables of the environment by whoever asks for them."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paceline.base.cache import cache_folder, usable
from paceline.spec.inputs import Inputs, Stamp, folder_digest, stamp_of, variable_digest
from paceline.spec.installed import package_folders
from paceline.worker.probe.opened import Opened
from paceline.worker.world.env import overheard, variables

_MANY = 32  # files of one folder, which then counts as a whole
_MOST_STAMPED = 1 << 28  # bytes that are read for it in one look
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr/share", "/run")
# What Python says when a network is spoken to or another program is started.
_OUTSIDE = frozenset(
    {"socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.posix_spawn", "os.fork"}
)
_COMPILER = f"{os.sep}torchinductor_"  # torch's compiler keeps what it makes in such a folder
_WRITES = os.O_WRONLY | os.O_RDWR
# Another value in every shell, or set for each process by whoever starts it: they say where a task runs.
_OF_THE_PROCESS = frozenset(
    {"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "PATH", "PYTHONSAFEPATH", "PYTHONHASHSEED", "OMP_NUM_THREADS"}
    | {"MKL_NUM_THREADS", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)
_OURS = "PACELINE_"


class Reads:
    """Everything that is read inside `with`. An audit hook stays for ever, so this is for a process that ends."""

    def __init__(self, source: Path, *own: Path, data: Path | None = None) -> None:
        """`source`: the task's file. `own`: folders in which others than the task read and write. `data`: where it may find its data."""
        self._source, self._data = source, data
        self._files, self._folders, self._written, self._variables = set[str](), set[str](), set[str](), set[str]()
        self._installed = tuple(
            str(path) for path in (*installed(), *own, *([cache_folder("probes").parent] if usable() else []))
        )
        self._looks, self._outside, self._opened, self._before = False, False, Opened(), set(sys.modules)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._looks = True
        sys.addaudithook(self._heard)
        # Of the task's code, and not of a library it uses: those ask for many, which change nothing that is computed.
        self._variables = self._open.enter_context(overheard(self.is_own))
        for folder in {Path.cwd(), self._source.parent, *([self._data] if self._data else [])}:
            self._opened.watch(folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._looks = False
        self._open.close()
        self._files |= self._opened.end()

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self._looks and event in _OUTSIDE:
            self._outside = True
        if not self._looks or event not in ("open", "os.listdir", "os.scandir", "sqlite3.connect"):
            return
        try:
            name = os.path.abspath(os.fsdecode(args[0] if args and args[0] is not None else "."))
        except (TypeError, ValueError):  # a number of an open file
            return
        if event in ("os.listdir", "os.scandir"):
            self._folders.add(name)
            return
        mode, flags = (args[1], args[2]) if event == "open" else (None, 0)
        writes = any(sign in mode for sign in "wax+") if isinstance(mode, str) else bool(int(flags or 0) & _WRITES)
        if writes and event == "open":
            self._written.add(name)
        else:
            self._files.add(name)

    def is_own(self, name: str) -> bool:
        """Whether a file or folder is neither installed, nor the system's, nor ours."""
        path = os.path.abspath(name)
        return os.path.isabs(name) and not any(
            path == home or path.startswith(home + os.sep) for home in self._installed
        )

    def inputs(self) -> Inputs:
        """Files that were only written are results and no inputs."""
        named = self._modules()
        opened = {name for name in self._files if self.is_own(name)} - {*named}
        opened -= self._written - self._files
        files = sorted(name for name in opened if Path(name).is_file() and not name.endswith((".pyc", ".lock")))
        crowded = {folder for folder, num in Counter(map(os.path.dirname, files)).items() if num > _MANY}
        folders = {name for name in self._folders if self._is_data(name)} | crowded
        budget, stamps = _MOST_STAMPED, dict[str, Stamp]()
        for name in files:
            if os.path.dirname(name) in crowded:
                continue
            stamps[name] = stamp_of(Path(name), most=budget)
            budget -= stamps[name].size if stamps[name].content else 0
        digests = {name: digest for name in sorted(folders) if (digest := folder_digest(Path(name))) is not None}
        values = variables()
        asked = {name for name in self._variables - _OF_THE_PROCESS if not name.startswith(_OURS)}
        return Inputs(
            modules={name: stamp_of(Path(name)) for name in named}, files=stamps, folders=digests,
            variables={name: variable_digest(values.get(name)) for name in sorted(asked)}, outside=self._outside,
        )  # fmt: skip

    def _modules(self) -> list[str]:
        """The task's file, what it imported that is not installed, and what it imported from beside it."""
        files = {
            os.path.realpath(file)
            for name, module in list(sys.modules.items())
            if isinstance(file := getattr(module, "__file__", None), str)
            and (name not in self._before or Path(file).is_relative_to(self._source.parent))
        }
        return sorted({str(self._source)} | {file for file in files if self.is_own(file) and os.path.isfile(file)})

    def _is_data(self, name: str) -> bool:
        """A folder that was listed. Not one that this command works in, where logs and results come and go; nor one that Python
        looks for modules in."""
        path, here = Path(name), Path.cwd()
        works = path in (here, *here.parents) or name in {os.path.abspath(entry) for entry in sys.path}
        hidden = any(part.startswith(".") for part in path.parts)
        return path.is_dir() and self.is_own(name) and not works and not hidden


def installed() -> list[Path]:
    """Where code is that a task does not bring: Python's own, packages of the environment, the system's, Paceline."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages(), *map(str, package_folders()), *_SYSTEM]
    if sys.prefix != sys.base_prefix:
        paths.append(sys.prefix)
    return [*map(Path, paths), Path(__file__).parents[2]]
