"""A verdict of the probe, kept in the cache for the next look at the same task: as long as its source, its data and the installed
packages are what they were."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from paceline.base.cache import cache_folder, usable
from paceline.base.files import read_json, write_json
from paceline.spec.inputs import Inputs, changed
from paceline.spec.installed import own_source, packages
from paceline.spec.verdict import Verdict


class KeptVerdict:
    """Of one question about a task: its file, parameters, folder of data and seed."""

    def __init__(self, question: Mapping[str, Any], seen: Callable[[], Inputs]) -> None:
        """`seen`: what the task has read so far. What it reads while it is probed is known from the time it was."""
        self._seen, self._path = seen, None
        if usable():
            asked = json.dumps([dict(question), packages(), own_source()], sort_keys=True, default=str)
            self._path = cache_folder("probes") / f"{hashlib.sha256(asked.encode()).hexdigest()[:24]}.json"
        self._then: Inputs | None = None
        self._made: Verdict | None = None

    def or_made(self, samples: Mapping[str, Any], make: Callable[[], Verdict]) -> Verdict:
        """`samples`: digests of the data as it is now."""
        found = self._found(samples)
        if found is None:
            found = self._made = make()
        return found

    def _found(self, samples: Mapping[str, Any]) -> Verdict | None:
        if self._path is None or not self._path.is_file():
            return None
        try:
            kept = read_json(self._path)
            then, found = Inputs.model_validate(kept["inputs"]), Verdict.model_validate(kept["verdict"])
        except (KeyError, TypeError, ValueError):  # damaged: it is made again
            return None
        now = self._seen().model_copy(update={"samples": samples, "seed": then.seed})
        if changed(then, now):
            return None
        self._then = then
        return found

    def keep(self, inputs: Inputs) -> None:
        """Not one that could not be reached: what was in the way may be gone the next time."""
        if self._path is not None and self._made is not None and self._made.unknown is None:
            what = {"verdict": self._made.model_dump(mode="json"), "inputs": inputs.model_dump(mode="json")}
            write_json(self._path, {"schema": 1, **what})

    def with_what_was_read_then(self, inputs: Inputs) -> Inputs:
        """A probe that was not made again has read nothing: what a run depends on is what it read the first time."""
        if self._then is None:
            return inputs
        kinds = ("modules", "files", "folders", "variables")
        return inputs.model_copy(update={kind: getattr(self._then, kind) | getattr(inputs, kind) for kind in kinds})
