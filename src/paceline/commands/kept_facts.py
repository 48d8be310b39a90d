"""What a describe job found out about a task, kept for the next run of it: so its data is not loaded once more only to be described.

An answer is kept when a run has confirmed it: a rank loaded the data again, in a process of its own, and had the same samples. It is
used while everything the task read, its modules, variables and the installed packages are what they were, and every run that
uses it compares its samples again. For `paceline run` only: a study rests on finished runs, and no rank of theirs looks again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.base.cache import cache_folder, usable
from paceline.base.environment import variable
from paceline.base.files import read_json, remove_file, write_json
from paceline.records.facts import TaskFacts
from paceline.spec.host import Host
from paceline.spec.inputs import SAYS_NOTHING, Inputs, changed
from paceline.spec.installed import own_source, packages
from paceline.spec.verdict import OTHER_DATA

if TYPE_CHECKING:
    from paceline.records.record import Record

_VARIABLES = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


class KeptFacts:
    """Of one question to a describe job, asked from this folder with this Python on this machine."""

    def __init__(self, question: Mapping[str, Any], host: Host) -> None:
        self._path: Path | None = None
        with suppress(FileNotFoundError):  # the current folder is gone: whoever needs it says so
            if not usable():
                return
            where = [os.getcwd(), sys.prefix, host.torch, host.gpus, host.usable_gpus, *map(variable, _VARIABLES)]
            asked = json.dumps([dict(question), where, packages(), own_source()], sort_keys=True, default=str)
            self._path = cache_folder("facts") / f"{hashlib.sha256(asked.encode()).hexdigest()[:24]}.json"

    def found(self) -> TaskFacts | None:
        if self._path is None or not self._path.is_file():
            return None
        try:
            facts = TaskFacts.load(read_json(self._path))
            inputs = Inputs.model_validate(facts.inputs)
        except (KeyError, TypeError, ValueError):  # damaged: it is made again
            return None
        return None if changed(inputs) else replace(facts, probe_s=0.0)

    def settle(self, facts: TaskFacts, record: Record) -> None:
        """After a run with these facts: its ranks had the same samples, or they are not what they were."""
        if self._path is None or record.spec.get("inputs") != facts.inputs:
            return
        if any(warned.kind == OTHER_DATA for warned in record.warnings):
            remove_file(self._path)
        elif record.completed and _can_be_kept(facts, record.spec["seed"]):
            write_json(self._path, facts.plain())


def _can_be_kept(facts: TaskFacts, seed: int) -> bool:
    """Its data comes from what is compared, as far as anybody can see, and its samples can be told from others."""
    if facts.inputs is None or facts.probe is None or facts.probe["unknown"] is not None:
        return False
    inputs = Inputs.model_validate(facts.inputs)
    told = [any(part != SAYS_NOTHING for row in rows for part in row) for _, rows in inputs.samples.values()]
    return not inputs.outside and inputs.seed == seed and len(told) == 2 and all(told)
