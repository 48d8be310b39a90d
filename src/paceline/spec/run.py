"""The spec: a task and all settings, complete, frozen. What `spec.json` holds and what a worker obeys."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from paceline.spec.inputs import Inputs
from paceline.spec.settings import NOT_THE_EXPERIMENT, Settings
from paceline.spec.verdict import Verdict

SCHEMA = 1


class Spec(Settings):
    """One run, complete: no `auto` is left in a spec that was written down."""

    schema_version: int = Field(SCHEMA, alias="schema")
    task: str = Field(description="a built-in task, or path/to/file.py[:Class]")
    params: dict[str, int | float | bool | str | None] = Field(
        default_factory=dict, description="the task's own parameters"
    )
    source_sha256: str | None = Field(
        None, description="the user's task file and its modules: edited, they are another experiment"
    )

    data_stamp: str | None = Field(
        None, description="names, sizes and times of the files in data: changed, another experiment"
    )

    probe: Verdict | None = Field(None, description="of a user's task: how its loss and its scores recombine")

    inputs: Inputs | None = Field(
        None,
        description="of a user's task: the files, variables and samples it depends on; changed, a finished run does not count",
    )

    again: str | None = Field(None, description="why a run that was finished is made again")

    chosen: dict[str, Any] | None = Field(
        None,
        description="of graph=auto and kernel=auto: what a trial found of each way, and the length of run it chose for",
    )

    model_config = {"populate_by_name": True}

    def plain(self) -> dict[str, Any]:
        """The spec as JSON holds it."""
        return self.model_dump(mode="json", by_alias=True)

    def key(self) -> str:
        """Same key, same experiment: what decides whether a finished run may be used again."""
        what = {k: v for k, v in self.plain().items() if k not in NOT_THE_EXPERIMENT}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]

    def of_steps(self, steps: int | None) -> Spec:
        """The same run with so many steps, for a trial: without what it is watched for beside its speed."""
        watched = {"target": None, "evaluate_every": None, "stop_at": None, "keep": "last"}
        return self.model_copy(update={"steps": steps, "epochs": None, **watched})

    def autos(self) -> list[str]:
        """Settings still to be resolved; empty in every written spec."""
        return [name for name in Settings.model_fields if getattr(self, name) == "auto"]
