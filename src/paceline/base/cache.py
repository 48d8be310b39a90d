"""The cache folder: things that are kept from one command to the next and can always be made again (compiled code,
trials). Never a result."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from paceline.base.environment import variable
from paceline.base.errors import RunFailed


def cache_folder(name: str) -> Path:
    """In `PACELINE_CACHE`, or in the user's own cache folder. Code is loaded from it: it must be ours, and nobody else may write there."""
    folder = _root() / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in (folder.parent, folder):
            _ours(part)
    except OSError as error:
        raise RunFailed(
            f"{folder}: what is kept between commands cannot be put there ({error.strerror or error}): name another folder in "
            "PACELINE_CACHE",
            kind="disk",
        ) from error
    return folder


def usable() -> bool:
    """Whether anything can be cached: a user without a home may have no such folder."""
    try:
        return os.access(cache_folder("kernels"), os.W_OK | os.X_OK)
    except RunFailed:
        return False


def _root() -> Path:
    if own := variable("PACELINE_CACHE"):
        return Path(own).expanduser().absolute()
    given = variable("XDG_CACHE_HOME")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "paceline"
    except RuntimeError as error:  # neither HOME nor an entry in the list of users
        raise RunFailed(
            f"there is no folder for what is kept between commands ({error}): name one in PACELINE_CACHE", kind="disk"
        ) from None


def _ours(folder: Path) -> None:
    status = folder.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.getuid()
        or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise RunFailed(
            f"{folder}: code would be loaded from it, and it is a link, another user's, or others may write there: name a folder of your "
            "own in PACELINE_CACHE",
            kind="disk",
        )
