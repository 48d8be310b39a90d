"""`sharding=embedding`: tables cut over ranks, everything else replicated. Each rank has its own samples, and asks for their rows.

A table's gradient is complete where its rows lie, so only the rest of the model is summed over ranks, in one message a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.optim.sparse import gradient_rows
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.sharding.sharding import InParts, num_parameters
from paceline.worker.sharding.tables import cut_tables
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.world.collectives import agree, all_reduce_
from paceline.worker.world.join import World


class CutTables(Replicated):
    """The model was cut when it was built (`tables.build_cut`); this brings the gradients together."""

    word = "embedding"

    def __init__(self, task_module: TaskModule, world: World, watch: Stopwatch) -> None:
        self._tables = cut_tables(task_module.model)
        shards = [table.shard for table in self._tables.values()]
        super().__init__(task_module, world, apart=shards)
        self.in_parts: Mapping[str, InParts] = self._tables
        self._shards = [shard for shard in shards if shard.requires_grad]
        self._watch = watch
        self._fewest, self._most = agree(sum(parameter.numel() for parameter in task_module.model.parameters()), world)

    def _of_tables(self) -> list[torch.Tensor]:
        return [rows for shard in self._shards if (rows := gradient_rows(shard)) is not None]

    def gradients(self) -> list[torch.Tensor]:
        return [*super().gradients(), *self._of_tables()]

    def reduce(self, count: Any) -> None:
        total = self.exchange(count)
        for gradient in self._of_tables():
            gradient.div_(total)

    def norm(self) -> torch.Tensor:
        """Replicated parameters count once; the squares of cut ones are summed over all ranks."""
        mine = torch.nn.utils.get_total_norm(self._of_tables()).to(self.world.device)
        square = torch.square(mine.to(torch.promote_types(mine.dtype, torch.float32))).reshape(1)
        with self._watch.aside():
            all_reduce_(square, self.world)
        same = torch.nn.utils.get_total_norm(super().gradients()).to(square)
        return torch.sqrt(square[0] + torch.square(same))

    def read_back(self) -> dict[str, Any]:
        """How each table is cut, read from the shapes of the parts; every rank reports the same."""
        splits = {_split(tuple(table.shard.shape), table.shape) for table in self._tables.values()}
        return {
            "table_split": "+".join(sorted(splits)),
            "tables": len(self._tables),
            "sparse_tables": sum(table.sparse for table in self._tables.values()),
            "parameters": {
                "smallest_rank": self._fewest,
                "largest_rank": self._most,
                "model": num_parameters(self._model, self.in_parts),
            },
        }


def _split(part: tuple[int, ...], table: tuple[int, int]) -> str:
    """
    >>> _split((5, 4), (10, 4)), _split((10, 2), (10, 4)), _split((10, 4), (10, 4))
    ('rows', 'columns', 'not cut')
    """
    return {(True, False): "rows", (False, True): "columns"}.get((part[0] < table[0], part[1] < table[1]), "not cut")
