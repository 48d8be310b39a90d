"""Waiting for a device, so that a clock edge means what it says."""

from __future__ import annotations

import torch


def settle(device: torch.device) -> None:
    """Costs a synchronisation, so it is called at marks and never in a step."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
