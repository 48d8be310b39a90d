"""Sums and counts of loss and scores, kept on the device without waiting for it, and reduced over ranks exactly once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.world.collectives import all_reduce_, broadcast_json
from paceline.worker.world.join import World

Sums = dict[str, tuple[Any, Any]]  # name -> (sum, count)


def _double(value: Any) -> torch.Tensor:
    tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)
    return tensor.to(torch.float64).reshape(())


class Tally:
    """What a rank saw: (sum, count) by name and the number of samples. Means are taken last."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, torch.Tensor] = {}
        self._later: Callable[[], Sums] | None = None
        self.num = 0

    def later(self, give: Callable[[], Sums], num: int) -> None:
        """Add `num` samples whose sums `give` returns when they are read: a step that is one graph adds them up itself."""
        self._later = give
        self.num += num

    def take(self) -> None:
        """Fetch the sums that `later` has left to fetch."""
        give, self._later = self._later, None
        if give is not None:
            self.add(give(), 0)

    def add(self, values: Sums, num: int) -> None:
        for name, (total, count) in values.items():
            if name in self._sums:
                self._sums[name] = self._sums[name] + _double(total)
                self._counts[name] = self._counts[name] + _double(count)
            else:
                self._sums[name], self._counts[name] = _double(total), _double(count)
        self.num += num

    def merge(self, other: Tally) -> None:
        other.take()
        self.add({name: (other._sums[name], other._counts[name]) for name in other._sums}, other.num)

    def add_means(self, means: dict[str, float]) -> None:
        """Figures that are no sums over samples."""
        self.add({name: (value, 1) for name, value in means.items()}, 0)

    @property
    def names(self) -> list[str]:
        self.take()
        return list(self._sums)

    def means(self) -> dict[str, float | None]:
        """Waits for the device. A name without a count has no mean."""
        rows = {name: (float(self._sums[name]), float(self._counts[name])) for name in self.names}
        return {name: total / count if count else None for name, (total, count) in rows.items()}

    def plain(self) -> dict[str, Any]:
        """As JSON takes it; waits for the device."""
        sums = {name: [float(self._sums[name]), float(self._counts[name])] for name in self.names}
        return {"sums": sums, "num": self.num}

    def refill(self, values: dict[str, Any]) -> None:
        """What `plain` gave, instead of what is in here. The object stays: a step may be about to add to it."""
        self._sums, self._counts, self._later, self.num = {}, {}, None, 0
        self.add({name: (total, count) for name, (total, count) in values["sums"].items()}, values["num"])

    def over(self, world: World, names: list[str] | None = None) -> Tally:
        """The tally of all ranks together. A rank without samples learns the names of the scores from rank 0, which always has some.
        `names`: those of the last call, which saves sending them again."""
        if world.size == 1:
            return self
        known = names is not None
        if names is None:
            told = broadcast_json(self.names, world)
            assert isinstance(told, list)
            names = told
        others = bool(self.num) and sorted(names) != sorted(self.names)
        if others and not known:
            raise RunFailed(
                f"rank {world.rank} has scores {sorted(self.names)}, rank 0 has {sorted(names)}", kind="task"
            )
        zero = torch.zeros((), dtype=torch.float64)
        rows = [self._sums.get(name, zero) for name in names] + [self._counts.get(name, zero) for name in names]
        ends = [torch.tensor(float(value), dtype=torch.float64) for value in (self.num, others)]
        message = torch.stack([row.cpu() for row in rows] + ends)
        all_reduce_(message, world)
        if message[-1]:  # some rank has other names than in the last call: all ranks exchange them again
            return self.over(world)
        total = Tally()
        total.add(
            {name: (message[i], message[len(names) + i]) for i, name in enumerate(names)}, int(message[-2].item())
        )
        return total


def finite(means: dict[str, float | None], *, where: str) -> dict[str, float | None]:
    """The same means, or a failure: a NaN that is averaged away is the worst result of all."""
    for name, value in means.items():
        if value is not None and not math.isfinite(value):
            raise RunFailed(f"the {name} became {value} {where}", kind="nonfinite")
    return means
