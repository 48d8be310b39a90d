"""Scores that do not add up over batches (F1, R2, an AUC): computed once, from the outputs for the whole test set, or from sums over it.

What each rank has kept is gathered and put into the order of the test set, so the scores are the same at every world size and test batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.worker.step.together import gather_rows
from paceline.worker.tasks import tree
from paceline.worker.tasks.targets import targets_of
from paceline.worker.tasks.task import Task, users_code
from paceline.worker.world.collectives import all_gather, all_reduce_, broadcast_json
from paceline.worker.world.join import World

_WAY_OUT = "define score(outputs, batch) that returns sums, and score_of(sums)"


@dataclass(frozen=True, slots=True)
class _Blank:
    """In place of inputs that no score looks at: zeros, which take no memory."""

    shape: tuple[int, ...]  # of one sample
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Blank:
        return cls(tuple(tensor.shape[1:]), tensor.dtype)

    def rows(self, num: int) -> torch.Tensor:
        return torch.zeros((1,) * (1 + len(self.shape)), dtype=self.dtype).expand(num, *self.shape)


class WholeSet:
    """One evaluation. `take` after every batch, `scores` at the end, which all ranks call together."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._ids: list[np.ndarray[Any, Any]] = []
        self._kept: list[Any] = []  # (outputs, batch) of each batch
        self._sums: dict[str, torch.Tensor] = {}
        self._keeps = task.score_all is not None or task.scores_whole

    def check(self, num: int, num_shares: int) -> None:
        if (self._keeps or self._task.score_of is not None) and num < num_shares:
            raise RunFailed(
                f"{self._task.name}: a score of the whole test set on {num_shares} ranks, and the test set has {num} samples: every rank "
                "needs one; use fewer processes",
                kind="task",
            )

    def take(self, ids: np.ndarray[Any, Any], outputs: Any, batch: Any) -> None:
        """Of `len(ids)` samples; kept on the host."""
        if self._task.score_of is not None:
            self._add(self._task.score(outputs, batch))
        if self._keeps:
            self._ids.append(ids)
            self._kept.append(tree.mapped(_on_host, (outputs, self._needed(batch)), opens=False))

    def _needed(self, batch: Any) -> Any:
        """Without the inputs, where no score looks at them: a test set of images may be larger than the memory."""
        if not self._task.scores_whole:
            return targets_of(batch)
        if self._task.verdict.uses_inputs or not isinstance(batch, tuple | list) or len(batch) < 2:
            return batch
        return (*tree.mapped(_Blank.of, tuple(batch[:-1]), opens=False), batch[-1])

    def _add(self, sums: Any) -> None:
        if not isinstance(sums, Mapping):
            raise RunFailed(
                f"{self._task.name}: score(outputs, batch) returned a {type(sums).__name__}; with score_of(sums) it must return named "
                "sums (numbers or tensors)",
                kind="task",
            )
        for name, value in sums.items():
            tensor = torch.as_tensor(value).detach().double().cpu()
            self._sums[str(name)] = self._sums[str(name)] + tensor if name in self._sums else tensor

    def scores(self, world: World | None) -> dict[str, float]:
        """By name. `world`: where each rank has kept a part of the test set."""
        scores: dict[str, float] = {}
        if self._task.score_of is not None:
            scores |= self._of_sums(world)
        if self._keeps:
            scores |= self._of_outputs(world)
        return scores

    def _of_sums(self, world: World | None) -> dict[str, float]:
        assert self._task.score_of is not None
        sums = self._sums if world is None else _over(self._sums, world)
        with users_code(f"{self._task.name}: score_of(sums)", self._task.source):
            return _named(self._task.score_of(sums), f"{self._task.name}: score_of(sums)")

    def _of_outputs(self, world: World | None) -> dict[str, float]:
        task = self._task
        outputs, batch = self._joined(world)
        found: dict[str, float] = {}
        if world is None or world.rank == 0:
            with torch.no_grad():
                if task.scores_whole:
                    with users_code(f"{task.name}: score(outputs, batch) of the whole test set", task.source):
                        value = task.score(outputs, batch)
                        found |= _named(value, f"{task.name}: score(outputs, batch)", task.whole_scores(value))
                if task.score_all is not None:
                    with users_code(f"{task.name}: score_all(outputs, targets)", task.source):
                        targets = targets_of(batch) if task.scores_whole else batch
                        found |= _named(task.score_all(outputs, targets), f"{task.name}: score_all(outputs, targets)")
        if world is not None:
            told = broadcast_json(found, world)
            assert isinstance(told, dict)
            found = {str(name): float(value) for name, value in told.items()}
        return found

    def _joined(self, world: World | None) -> tuple[Any, Any]:
        """Outputs and batch of the whole test set, in its order."""
        ids = torch.from_numpy(np.concatenate(self._ids)) if self._ids else torch.zeros(0, dtype=torch.int64)
        sizes = [len(ids)]
        flat = [tree.flat(kept) for kept in self._kept]
        if world is not None:
            shapes = [
                sorted({_shape(leaf) for leaf in column})
                for column in zip(*(leaves for leaves, _ in flat), strict=False)
            ]
            told = all_gather(torch.tensor([len(ids), crc32(repr(shapes).encode())]), world)
            sizes = [int(row[0].item()) for row in told]
            if len({int(row[1].item()) for row in told}) > 1:
                raise RunFailed(
                    f"{self._task.name}: a score of the whole test set needs one row a sample, all of one shape; on other ranks they have "
                    f"other shapes than here ({'; '.join(', '.join(column) for column in shapes[:4])}): {_WAY_OUT}",
                    kind="task",
                )
            ids = gather_rows(ids, sizes, world)
        if len({len(leaves) for leaves, _ in flat}) > 1:
            raise RunFailed(
                f"{self._task.name}: a score of the whole test set needs outputs of one form, and the model returned more tensors for "
                f"some test batches than for others: {_WAY_OUT}",
                kind="task",
            )
        order = torch.argsort(ids)
        leaves = [
            self._column([leaves[index] for leaves, _ in flat], [len(own) for own in self._ids], order, sizes, world)
            for index in range(len(flat[0][0]))
        ]
        return flat[0][1].of(iter(leaves))

    def _column(
        self, parts: list[Any], nums: Sequence[int], order: torch.Tensor, sizes: Sequence[int], world: World | None
    ) -> Any:
        """One leaf of all batches, one row a sample."""
        if isinstance(parts[0], _Blank):
            return parts[0].rows(sum(sizes))
        if not isinstance(parts[0], torch.Tensor):
            holds = next(tree.tensors_of(parts[0]), None) is not None  # an object that cannot be put together
            if holds or any(part is not parts[0] and part != parts[0] for part in parts):
                raise RunFailed(
                    f"{self._task.name}: a score of the whole test set is given a {type(parts[0]).__name__} that differs from batch to "
                    f"batch, and only tensors can be put together: {_WAY_OUT}",
                    kind="task",
                )
            return parts[0]
        shapes = {tuple(part.shape[1:]) for part in parts}
        if len(shapes) > 1 or any(not part.dim() or len(part) != num for part, num in zip(parts, nums, strict=True)):
            raise RunFailed(
                f"{self._task.name}: a score of the whole test set needs one row a sample, all of one shape; the test batches have tensors "
                f"of shape {', '.join(str(list(part.shape)) for part in parts[:3])}: {_WAY_OUT}",
                kind="task",
            )
        own = torch.cat(parts)
        return (own if world is None else gather_rows(own, sizes, world))[order]


def _shape(leaf: Any) -> str:
    """Of a sample."""
    return str(list(leaf.shape[1:])) if isinstance(leaf, torch.Tensor) else type(leaf).__name__


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu()


def _named(value: Any, what: str, only: frozenset[str] | None = None) -> dict[str, float]:
    """Numbers by name; one without a name is called `score`. `only`: these of them."""
    named: dict[Any, Any] = {**value} if isinstance(value, Mapping) else {"score": value}
    try:
        return {str(name): float(number) for name, number in named.items() if only is None or str(name) in only}
    except (TypeError, ValueError, RuntimeError):
        raise RunFailed(f"{what} must return one number, or a dict of named numbers", kind="task") from None


def _over(sums: dict[str, torch.Tensor], world: World) -> dict[str, torch.Tensor]:
    """Added up over ranks. A rank without samples learns names and shapes from rank 0, which always has some."""
    told = broadcast_json({name: list(tensor.shape) for name, tensor in sums.items()}, world)
    assert isinstance(told, dict)
    zero = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in told.items()}
    if sums and {name: list(tensor.shape) for name, tensor in sums.items()} != told:
        raise RunFailed("score(outputs, batch) returned other sums on this rank than on rank 0", kind="task")
    mine = [sums.get(name, zero[name]) for name in told]
    message = all_reduce_(torch.cat([tensor.reshape(-1) for tensor in mine]), world)
    pieces = message.split([tensor.numel() for tensor in mine])
    return {name: piece.view(zero[name].shape) for name, piece in zip(told, pieces, strict=True)}
