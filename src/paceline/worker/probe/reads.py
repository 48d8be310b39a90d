"""What a task reads while the describe job looks into it: files and folders by Python's audit events, files that other code opens by the
kernel's, variables of the environment by whoever asks for them."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paceline.spec.inputs import Inputs, Stamp, folder_digest, stamp_of, variable_digest
from paceline.worker.probe.opened import Opened

_MANY = 32  # files of one folder, which then counts as a whole
_MOST_STAMPED = 1 << 28  # bytes that are read for it in one look
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr/share", "/run")
_COMPILER = "torchinductor_"  # torch's compiler keeps what it makes in such a folder
_WRITES = os.O_WRONLY | os.O_RDWR


class Reads:
    """Everything that is read inside `with`. An audit hook stays for ever, so this is for a process that ends."""

    def __init__(self, source: Path | None, *own: Path) -> None:
        """`source`: the task's file. `own`: folders in which others than the task read and write."""
        self._source = source
        self._files, self._folders, self._variables = dict[str, None](), dict[str, None](), dict[str, None]()
        self._written: set[str] = set()
        self._installed = tuple(str(path) for path in (*installed(), *own))
        self._looks, self._opened, self._before = False, Opened(), set(sys.modules)

    def __enter__(self) -> Self:
        self._looks = True
        sys.addaudithook(self._heard)
        self._listen_to_variables()
        for folder in {Path.cwd(), self._source.parent} if self._source is not None else ():
            self._opened.watch(folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._looks = False

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._looks or event not in ("open", "os.listdir", "os.scandir", "sqlite3.connect"):
            return
        try:
            name = os.path.abspath(os.fsdecode(args[0] if args and args[0] is not None else "."))
        except (TypeError, ValueError):  # a number of an open file
            return
        if event in ("os.listdir", "os.scandir"):
            self._folders[name] = None
            return
        mode, flags = (args[1], args[2]) if event == "open" else (None, 0)
        writes = any(sign in mode for sign in "wax+") if isinstance(mode, str) else bool(int(flags or 0) & _WRITES)
        if writes and event == "open":
            self._written.add(name)
        else:
            self._files[name] = None

    def _listen_to_variables(self) -> None:
        kind: Any = type(os.environ)
        get = kind.__getitem__

        def asked(environ: Any, name: str) -> str:
            if self._looks and self._by_task():
                self._variables[name] = None
            return get(environ, name)

        kind.__getitem__ = asked

    def _by_task(self) -> bool:
        """Whether the task's code asks, and not a library it uses: those ask for many, which change nothing that is computed."""
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith("<frozen"):
            frame = frame.f_back
        return frame is not None and self.is_own(frame.f_code.co_filename)

    def is_own(self, name: str) -> bool:
        """Whether a file or folder is neither installed, nor the system's, nor ours."""
        path = os.path.abspath(name)
        return os.path.isabs(name) and not any(
            path == home or path.startswith(home + os.sep) for home in self._installed
        )

    def inputs(self) -> Inputs:
        """Files that were only written are results and no inputs."""
        named = self._modules()
        opened = {name for name in (*self._files, *self._opened.names()) if self.is_own(name)} - {*named}
        opened -= self._written - {*self._files}
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
        variables = {name: variable_digest(os.environ.get(name)) for name in sorted(self._variables)}
        return Inputs(
            modules={name: stamp_of(Path(name)) for name in named}, files=stamps, folders=digests, variables=variables
        )

    def _modules(self) -> list[str]:
        """The task's file, what it imported that is not installed, and what it imported from beside it."""
        assert self._source is not None
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
    paths += [*site.getsitepackages(), site.getusersitepackages(), *_SYSTEM]
    if sys.prefix != sys.base_prefix:
        paths.append(sys.prefix)
    compiled = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{_COMPILER}*")]
    return [*(Path(path) for path in (*paths, *compiled)), Path(__file__).parents[2]]
