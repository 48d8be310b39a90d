"""What a report concluded, as typed data that figures can confirm or refute, and the report's own figures beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from paceline.spec.settings import Frozen

Scalar = bool | int | float | str
Values = dict[str, Scalar]


def matches(cell: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a cell has these values, among others; a file may write a number where a setting has text."""
    return all(str(cell.get(name)) == str(value) for name, value in wanted.items())


class Needs(Frozen):
    """The hardware a claim speaks of. Figures of runs that had less of it say nothing of the claim."""

    device: Literal["cpu", "cuda"] | None = None
    machines: Annotated[int, Field(ge=1)] = 1  # real ones: nodes of a cluster in a box are one
    cores: Annotated[int, Field(ge=1)] = 1  # of all machines together: ranks that share a core are no faster than it


class Stated(Frozen):
    """A claim, but for the cells it is about.

    The candidate's metric is lower / higher than, or equal to, `factor` times the baseline's. `against` is the baseline's metric where
    it is another one: two layers of one model.
    """

    claim: str = Field(description="in the report's words")
    report: str | None = Field(default=None, description="whose it is: A1, E3, ...; unset: our own")
    metric: str
    against: str | None = None
    factor: Annotated[float, Field(gt=0)] = 1.0
    says: Literal["lower", "higher", "equal"]
    size: float | None = Field(
        default=None, gt=0, description="how far from the same it must lie (`far slower`); unset: the metric's own practical size"
    )  # fmt: skip
    needs: Needs = Field(default_factory=Needs)
    note: str = ""


class Pair(Frozen):
    baseline: Values
    candidate: Values


class Conclusion(Stated):
    """`equal_work`: the same question between cells that do the same work, where the report's own do not."""

    baseline: Values
    candidate: Values
    equal_work: Pair | None = None


class ReferenceRow(Frozen):
    """A report's figures for one cell, by metric name (seconds, bytes, fractions)."""

    cell: Values
    values: dict[str, float]


class Repeated(Frozen):
    """One configuration that a report measured several times without meaning to: how much its figures vary by themselves."""

    what: str
    metric: str
    cell: Values = Field(
        default_factory=dict[str, Scalar], description="which cells of ours are that configuration; unset: any"
    )
    values: Annotated[list[float], Field(min_length=2)]


class Reference(Frozen):
    source: str = Field(description="which report and table")
    rows: list[ReferenceRow] = Field(default_factory=list[ReferenceRow])
    rows_of: str | None = Field(
        default=None, description="whose the rows are, where claims of several reports are judged"
    )
    repeated: list[Repeated] = Field(default_factory=list[Repeated])
    conclusions: list[Conclusion] = Field(default_factory=list[Conclusion])
