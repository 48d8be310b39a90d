"""Seeds, set in one place: the same weights on every rank, then a stream of its own for each rank (dropout). Nothing else."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_everything(seed: int, *, rank: int = 0) -> None:
    """Rank 0 and a one-process run draw the same stream; other ranks another, so that their dropout masks differ."""
    mixed = (seed + 1_000_003 * rank) % 2**32
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)
