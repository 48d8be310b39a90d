"""The kinds of values settings have: numbers with bounds, durations, words of a script, names of a table. No setting is known here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema

from paceline.spec.topology import parse

Auto = Literal["auto"]


class OneOf:
    """One of these names: what `Literal` says, for names that stand in a table."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


def _topology(value: Any) -> str:
    return str(parse(str(value)))


def _seconds(value: Any) -> Any:
    """`90`, `"90s"`, `"20m"` or `"2h"` in seconds."""
    if isinstance(value, str) and value[:-1].replace(".", "", 1).isdigit() and value[-1:] in "smh":
        return float(value[:-1]) * {"s": 1, "m": 60, "h": 3600}[value[-1]]
    return value


STOP = r"^(target|plateau:[1-9][0-9]*)$"


def _stop(value: str) -> str:
    if not re.fullmatch(STOP, value):
        raise ValueError("must be target, or plateau:N with a whole number of evaluations (plateau:5)")
    return value


def _memory(value: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]*[KMGT]?", value):
        raise ValueError("must be a whole number with K, M, G or T behind it (40000K, 600M, 2G)")
    return value


Count = Annotated[int, Field(ge=1)]
Real = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Real, Field(gt=0)]
NotNegative = Annotated[Real, Field(ge=0)]
Duration = Annotated[NotNegative, BeforeValidator(_seconds)]
PositiveDuration = Annotated[Positive, BeforeValidator(_seconds)]
OnTopology = Annotated[str, BeforeValidator(_topology), Field(json_schema_extra={"pattern": r"^\d+x\d+$"})]
# One word that goes into a script or a command: nothing a shell or sbatch could read as something else.
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:=/@%+&|*()\[\]-]+$")]
Memory = Annotated[str, AfterValidator(_memory)]
Stop = Annotated[str, AfterValidator(_stop), Field(json_schema_extra={"pattern": STOP})]


class Frozen(BaseModel):
    """Plain data that cannot change and takes no unknown name."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
