"""Loss scaling for fp16: gradients too small for the format are multiplied up, and an update whose gradient overflowed is left out.

Our own instead of torch's GradScaler, with its rule and its constants: the decision is taken from the norm of the whole model's
gradient, which every rank has anyway, so ranks that hold different parts of a model cannot decide differently.
"""

from __future__ import annotations

from typing import Any

import torch

_START, _GROW, _SHRINK, _GROW_AFTER = 65536.0, 2.0, 0.5, 2000
_PATIENCE = 20  # halved so often in a row, the scale has lost six digits: it is the model that is not finite


class LossScale:
    """`accepts` says whether this step's update may be made, and moves the scale."""

    def __init__(self) -> None:
        self.value = _START
        self.num_skipped = 0
        self._good, self._in_a_row = 0, 0

    def accepts(self, norm: torch.Tensor) -> bool:
        if bool(torch.isfinite(norm)):
            self._in_a_row = 0
            self._good += 1
            if self._good == _GROW_AFTER:
                self.value, self._good = self.value * _GROW, 0
            return True
        self.value *= _SHRINK
        self.num_skipped += 1
        self._good, self._in_a_row = 0, self._in_a_row + 1
        return False

    @property
    def stuck(self) -> str | None:
        """Why there is no use in going on, in one sentence; None while there is."""
        if self._in_a_row < _PATIENCE:
            return None
        return (
            f"fp16: {self._in_a_row} updates in a row were left out because their gradients were not finite, even with the loss "
            f"scaled by only {self.value:g}: the model itself overflows fp16; use bf16 or fp32"
        )

    def read_back(self) -> dict[str, Any]:
        return {"scale": self.value, "skipped_steps": self.num_skipped}
