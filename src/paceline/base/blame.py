"""Which line an error comes from: the user's, where there is one, with its text. It reads tracebacks and imports nothing of anybody's."""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

Frame = traceback.FrameSummary
_IN_TEXT = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TEXT_BEGINS = ("from user code:", "The following call raised this error:")  # torch's words
_LONGEST = 80
_PACELINE = Path(__file__).resolve().parents[1]


def users_line(error: BaseException, source: Path | None) -> str:
    """In brackets: the innermost line in the task's own files (`source` and modules beside it), or else in any package
    that is neither torch's, Python's nor ours. Empty where there is none. A built-in task has its own lines in ours."""
    frames = [frame for one in _chain(error) for frame in _frames(one)]
    own = _innermost(frame for frame in frames if _is_own(Path(frame.filename), source))
    if own is not None and source is not None:
        return _said(own, Path(own.filename).relative_to(source.parent).as_posix())
    other = _innermost(frame for frame in frames if not _is_machinery(frame.filename, ours=source is not None))
    return "" if other is None else _said(other, Path(other.filename).name)


def _said(frame: Frame, name: str) -> str:
    text = " ".join((frame.line or "").split())
    quoted = f": `{text[:_LONGEST]}{'...' if len(text) > _LONGEST else ''}`" if text else ""
    return f" ({name}, line {frame.lineno}, in {frame.name}{quoted})"


def _innermost(frames: Iterable[Frame]) -> Frame | None:
    return next(iter(reversed(list(frames))), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it was raised from or wraps."""
    seen = set[int]()
    while id(error) not in seen:
        yield error
        seen.add(id(error))
        below = error.__cause__ or getattr(error, "inner_exception", None)
        if not isinstance(below, BaseException):
            return
        error = below


def _frames(error: BaseException) -> Iterator[Frame]:
    """Outermost first. torch's compiler reads a function instead of running it: where it was then is in the error's
    `real_stack` or in its text."""
    yield from traceback.extract_tb(error.__traceback__)
    yield from getattr(error, "real_stack", None) or ()
    text = str(error)
    for begin in _TEXT_BEGINS:
        for name, number, function in _IN_TEXT.findall(text.partition(begin)[2]):
            yield Frame(name, int(number), function)


def _is_own(file: Path, source: Path | None) -> bool:
    if source is None:
        return False
    installed = file.is_relative_to(sys.prefix) or "site-packages" in file.parts or file.is_relative_to(_PACELINE)
    return file == source or (file.is_relative_to(source.parent) and not installed)


def _is_machinery(name: str, *, ours: bool) -> bool:
    file = Path(name)
    if name.startswith("<") or (ours and file.is_relative_to(_PACELINE)):
        return True
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch is not None and file.is_relative_to(Path(torch).parent):
        return True
    return file.is_relative_to(sysconfig.get_path("stdlib")) and "site-packages" not in file.parts
