"""Loss scaling for fp16: gradients too small for the format are multiplied up, and an update whose gradient overflowed is left out.

Our own instead of torch's GradScaler, with its rule and its constants: the decision is taken from the norm of the whole model's
gradient, which every rank has anyway, so ranks that hold different parts of a model cannot decide differently.
"""

from __future__ import annotations

from typing import Any

import torch

_START, _GROW, _SHRINK, _GROW_AFTER = 65536.0, 2.0, 0.5, 2000
_PATIENCE = 20  # halved so often in a row, the scale has lost six digits: it is the model that is not finite


class Skips:
    """How many updates were left out; whoever scales the loss, they are counted and judged alike."""

    def __init__(self) -> None:
        self.num, self.of, self.in_a_row = 0, 0, 0

    def note(self, *, left_out: bool) -> None:
        self.of += 1
        self.num += left_out
        self.in_a_row = self.in_a_row + 1 if left_out else 0

    @property
    def stuck(self) -> str | None:
        """Why there is no use in going on, in one sentence; None while there is."""
        if self.in_a_row < _PATIENCE:
            return None
        return (
            f"fp16: {self.in_a_row} updates in a row were left out because their gradients were not finite, although the loss scale "
            "was halved after each: the model itself overflows fp16; use bf16 or fp32"
        )

    def read_back(self) -> dict[str, Any]:
        return {"skipped_steps": self.num, "steps": self.of}

    def state(self) -> dict[str, Any]:
        return {"num": self.num, "of": self.of, "in_a_row": self.in_a_row}

    def restore(self, values: dict[str, Any]) -> None:
        self.num, self.of, self.in_a_row = values["num"], values["of"], values["in_a_row"]


class LossScale:
    """`accepts` says whether this step's update may be made, and moves the scale."""

    def __init__(self) -> None:
        self.value = _START
        self._skips, self._good = Skips(), 0

    def accepts(self, norm: torch.Tensor) -> bool:
        fine = bool(torch.isfinite(norm))
        self._skips.note(left_out=not fine)
        self._good = self._good + 1 if fine else 0
        if not fine:
            self.value *= _SHRINK
        elif self._good == _GROW_AFTER:
            self.value, self._good = self.value * _GROW, 0
        return fine

    @property
    def stuck(self) -> str | None:
        return self._skips.stuck

    def read_back(self) -> dict[str, Any]:
        return {"scale": self.value, **self._skips.read_back()}

    def state(self) -> dict[str, Any]:
        return {"value": self.value, "good": self._good, "skips": self._skips.state()}

    def restore(self, values: dict[str, Any]) -> None:
        self.value, self._good = values["value"], values["good"]
        self._skips.restore(values["skips"])


def nothing_trained(row: dict[str, Any] | None) -> str | None:
    """Of a run that is over, by what `read_back` gave: a sentence where not one update was made. Such a run proves nothing."""
    if not row or not row["steps"] or row["skipped_steps"] < row["steps"]:
        return None
    return (
        f"fp16: all {row['steps']} updates of the run were left out because their gradients were not finite, so nothing was trained: "
        "train longer (the loss scale is halved after each), or use bf16 or fp32"
    )
