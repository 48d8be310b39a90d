"""Seeds, set in one place: the same weights on every rank, then a stream of its own for each rank (dropout). Nothing else."""

from __future__ import annotations

import random

import numpy as np
import torch


def mixed(seed: int, rank: int) -> int:
    """A run's seed for one rank; rank 0 and a one-process run have the same."""
    return (seed + 1_000_003 * rank) % 2**32


def seed_everything(seed: int, *, rank: int = 0) -> None:
    """Rank 0 and a one-process run draw the same stream; other ranks another, so that their dropout masks differ."""
    own = mixed(seed, rank)
    random.seed(own)
    np.random.seed(own)
    torch.manual_seed(own)
