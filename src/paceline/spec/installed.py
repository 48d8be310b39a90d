"""What else than its own files decides on what is found out about a task: the packages that are installed, and Paceline's own source."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_PACKAGES = ("site-packages", "dist-packages")


def package_folders() -> list[Path]:
    """Where packages are installed: this environment's folders, and those of another one that its path names too."""
    own = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return sorted(map(Path, own | {entry for entry in sys.path if Path(entry).name in _PACKAGES}))


def packages() -> list[str]:
    """With versions: a loss may be computed by any of them."""
    return sorted({path.name for folder in package_folders() for path in folder.glob("*-info")})


def own_source() -> list[tuple[str, int, int]]:
    """Of Paceline's files that decide on what is found out, in a clone that is worked on."""
    home = Path(__file__).parents[1]
    files = [path for part in ("spec", "worker") for path in (home / part).rglob("*.py")]
    return sorted((str(path.relative_to(home)), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
