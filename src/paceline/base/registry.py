"""Names that stand for code not imported yet. Listing a registry is free; only `load` imports."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from paceline.base.errors import BadInput
from paceline.base.names import unknown


class Registry:
    """name -> "module:attribute", resolved on demand; unknown names are answered with the nearest one."""

    def __init__(self, what: str, targets: Mapping[str, str]) -> None:
        self.what = what
        self._targets = dict(targets)

    def names(self) -> list[str]:
        return list(self._targets)

    def load(self, name: str) -> Any:
        if name not in self._targets:
            raise BadInput(unknown(self.what, name, self._targets))
        module, _, attribute = self._targets[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
