"""The settings of a run's evaluations and its end. Values only; `worker/evaluations.py` and `worker/ends.py` apply them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paceline.spec.values import Count, Frozen, Real, Stop


class Ending(Frozen):
    """When the model is evaluated, when the run ends, and which weights it leaves."""

    evaluate_every: Count | None = Field(
        None,
        description="steps between two evaluations in the middle of an epoch, beside that after every epoch; training goes on with the "
        "same bits; unset: after every epoch alone",
    )
    target: Real | None = Field(
        None,
        description="score to reach on the test set; the record then holds the time it took, and stop_at=target ends the run there",
    )
    stop_at: Stop | None = Field(
        None,
        description="target: the run ends after the first evaluation that reaches target; plateau:N: after N evaluations in a row "
        "without a better score; unset: when epochs or steps are over",
    )
    keep: Literal["last", "best"] = Field(
        "last", description="which weights a run leaves: the last, or beside them those of the best evaluation"
    )

    @property
    def patience(self) -> int | None:
        """N of `stop_at=plateau:N`."""
        num = (self.stop_at or "").partition(":")[2]
        return int(num) if num else None
