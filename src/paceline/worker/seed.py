"""Seeds, set in one place: the same weights on every rank, then a stream of its own for each rank (dropout). Nothing else."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator

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


def fresh() -> None:
    """After a fork: streams from the system's own randomness, as a started process has them. A GPU's begins with a fixed seed."""
    random.seed()
    np.random.seed()
    torch.default_generator.seed()


@contextlib.contextmanager
def kept(device: torch.device) -> Generator[None]:
    """What is drawn inside leaves the streams as they were: for a look at the model that is no part of the training."""
    plain, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(of_numpy)
