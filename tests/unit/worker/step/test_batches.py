"""Rows that a compiled step is given on a CPU: always those of the step's place, whoever fetched them when."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.worker.step.batches import HostBatches
from paceline.worker.step.input import SamplePosition
from paceline.worker.tasks.feed import TensorFeed
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score

DATA = torch.arange(40.0).reshape(20, 2), torch.arange(20)
IDS = torch.randperm(20, generator=torch.Generator().manual_seed(1))


class Counted(HostBatches):
    num_fetched = 0

    def _fetch(self, start: int) -> None:
        self.num_fetched += 1
        super()._fetch(start)


def rows_of(place: SamplePosition, augment: Any = None) -> Counted:
    return Counted(
        Task("made up", torch.nn.Identity, list, list, usual_forward, usual_loss, usual_score, augment=augment), TensorFeed(DATA), place
    )  # fmt: skip


def holds(rows: HostBatches, ids: torch.Tensor, start: int) -> bool:
    x, y = rows.batch(rows.tensors)
    wanted = ids[start : start + rows.num]
    return y.tolist() == wanted.tolist() and x.tolist() == DATA[0][wanted].tolist()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_has_the_rows_of_its_place(ahead: bool) -> None:
    """Through an epoch, a step of another kind in the middle, the next epoch, and a place that comes again, whose rows were used."""
    other = IDS.flip(0).contiguous()
    rows = rows_of(SamplePosition(IDS, None, 0, 6))
    for ids, start in [(IDS, 0), (IDS, 6), (IDS, 12), (other, 0), (other, 12), (other, 12), (IDS, 12)]:
        rows.follow(SamplePosition(ids, None, start, 6))
        assert holds(rows, ids, start)
        rows.tensors["rows"][0].zero_()  # as a graph may
        if ahead:
            rows.fetch_ahead()
    # ahead: 5 firsts and jumps, 2 + 1 next ones (behind 12 no whole batch is left), of which one was not asked for
    assert rows.num_fetched == (8 if ahead else 7)


def test_keys_come_with_their_rows() -> None:
    keys = IDS * 10

    def augment(batch: Any, keys: torch.Tensor) -> Any:
        return batch[0] + keys[:, None], batch[1]

    rows = rows_of(SamplePosition(IDS, keys, 0, 5), augment)
    rows.follow(SamplePosition(IDS, keys, 5, 5))
    rows.fetch_ahead()
    rows.follow(SamplePosition(IDS, keys, 10, 5))
    x, y = rows.batch(rows.tensors)
    assert y.tolist() == IDS[10:15].tolist()
    assert x.tolist() == (DATA[0][IDS[10:15]] + keys[10:15, None]).tolist()
