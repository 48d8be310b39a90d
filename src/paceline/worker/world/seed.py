"""Seeds, set in one place: the same weights on every rank, then a stream of its own for each rank (dropout). Nothing else."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import torch

States = tuple[dict[str, torch.Tensor], dict[str, Any]]


def mixed(seed: int, rank: int) -> int:
    """A run's seed for one rank; rank 0 and a one-process run have the same."""
    return (seed + 1_000_003 * rank) % 2**32


def seed_everything(seed: int, *, rank: int = 0) -> None:
    """Rank 0 and a one-process run draw the same stream; other ranks another, so that their dropout masks differ."""
    own = mixed(seed, rank)
    random.seed(own)
    np.random.seed(own)
    torch.manual_seed(own)


def seed_host(seed: int) -> None:
    """The streams of the host alone. torch's own function keeps the caller's traceback for a GPU that was never used: a millisecond."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def fresh() -> None:
    """After a fork: streams from the system's own randomness, as a started process has them. A GPU's begins with a fixed seed."""
    random.seed()
    np.random.seed()
    torch.default_generator.seed()


@contextlib.contextmanager
def kept(device: torch.device) -> Generator[None]:
    """Restores the random streams after the block: for a look at the model that must not change the training."""
    plain, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(of_numpy)


class RandomStreams:
    """Global streams of one's own, for code that draws from the global ones in turns with a model: inside `with`, they are these."""

    def __init__(self, seed: int) -> None:
        self._host = torch.device("cpu")
        self._seed = seed
        self._own: States | None = None
        self._theirs: States | None = None

    def __enter__(self) -> None:
        self._theirs = random_states(self._host)
        if self._own is None:
            seed_host(self._seed)
        else:
            set_random_states(self._host, *self._own)

    def __exit__(self, *_: object) -> None:
        assert self._theirs is not None
        self._own, theirs = random_states(self._host), self._theirs
        set_random_states(self._host, *theirs)


def random_states(device: torch.device) -> States:
    """All global streams as they stand: tensors, and plain values beside them."""
    _, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, next_gauss = random.getstate()
    tensors = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.asarray(keys, dtype=np.int64)),
        "python": torch.tensor(words, dtype=torch.int64),
        **({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}),
    }
    return tensors, {"numpy": [int(place), int(has_gauss), float(gauss)], "python": [version, next_gauss]}


@contextlib.contextmanager
def one_thread() -> Generator[None]:
    """Around the loading of a user's data. A sum of many numbers depends on how many threads share them, and data must depend neither on a
    setting nor on the cores of a machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def same_states(one: States, other: States) -> bool:
    """Whether nobody has drawn between the two."""
    return one[1] == other[1] and all(torch.equal(tensor, other[0][name]) for name, tensor in one[0].items())


def set_random_states(device: torch.device, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> None:
    torch.set_rng_state(tensors["torch"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(tensors["cuda"].cpu(), device)
    place, has_gauss, gauss = values["numpy"]
    np.random.set_state(("MT19937", tensors["numpy"].cpu().numpy().astype(np.uint32), place, has_gauss, gauss))
    version, next_gauss = values["python"]
    random.setstate((version, tuple(tensors["python"].tolist()), next_gauss))
