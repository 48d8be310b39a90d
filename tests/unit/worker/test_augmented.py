"""Augmented batches are those of the samples: the same ids and the same pixels at every world size and in micro-batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.samples import Samples, augmented
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.load import find
from paceline.worker.tasks.order import epoch_order, sample_keys, training_pieces

NUM, BATCH = 70, 32


def seen(*, ranks: int, accumulate: int, epoch: int = 1) -> tuple[list[int], torch.Tensor]:
    """Sample ids and pixels of an epoch, put back into the order in which one process sees them."""
    found = find("cifar-cnn")
    task = found.build({param.name: param.default for param in found.params}, None)
    images, _ = task.train_data()
    ids, pixels = [[] for _ in range(3)], [[] for _ in range(3)]
    for rank in range(ranks):
        spec = Spec(task="cifar-cnn", batch=BATCH, accumulate=accumulate, seed=9)
        feed = make_feed((images[:NUM], np.arange(NUM)), what="data", collate=None)  # the label is the sample's number
        order = epoch_order(NUM, seed=spec.seed, epoch=epoch, shuffle=True)
        pieces = training_pieces(order, batch=BATCH, rank=rank, world_size=ranks)
        samples = Samples(feed, task, Stopwatch("data"), torch.device("cpu"), seed=spec.seed, accumulate=accumulate)
        for step, step_input in enumerate(samples.steps(pieces, epoch=epoch)):
            for batch, _, _ in step_input:
                ids[step] += batch[1].tolist()
                pixels[step].append(batch[0])
    return [number for step in ids for number in step], torch.cat([piece for step in pixels for piece in step])


def test_one_and_two_ranks_see_the_same_pixels() -> None:
    ids, pixels = seen(ranks=1, accumulate=1)
    assert sorted(ids) == list(range(NUM))
    for ranks, accumulate in ((2, 1), (3, 1), (1, 4), (2, 3)):
        others, same = seen(ranks=ranks, accumulate=accumulate)
        assert others == ids
        assert same.equal(pixels), (ranks, accumulate)


def test_another_epoch_has_other_pixels() -> None:
    first, second = (dict(zip(*seen(ranks=1, accumulate=1, epoch=epoch), strict=True)) for epoch in (0, 1))
    changed = sum(not first[key].equal(second[key]) for key in first)
    assert changed > 0.9 * NUM


def test_keys_are_of_the_sample_the_epoch_and_the_seed() -> None:
    ids = np.arange(1000, dtype=np.int64)
    keys = sample_keys(ids, seed=1, epoch=0)
    assert len(set(keys.tolist())) == 1000 and int(keys.min()) >= 0
    assert np.array_equal(sample_keys(ids[::-1], seed=1, epoch=0), keys[::-1])
    for other in (sample_keys(ids, seed=2, epoch=0), sample_keys(ids, seed=1, epoch=1)):
        assert not set(other.tolist()) & set(keys.tolist())
    bits = np.unpackbits(keys.view(np.uint8)).mean()
    assert 0.47 < bits < 0.53, "63 bits, half of them set"


def fetch(augment: Any) -> Any:
    task: Any = SimpleNamespace(name="mine", augment=augment)
    return augmented(
        task, (torch.ones(4, 2), torch.zeros(4)), torch.from_numpy(sample_keys(np.arange(4), seed=1, epoch=0))
    )


def test_a_task_may_change_samples_but_not_their_number() -> None:
    assert fetch(lambda batch, keys: (batch[0] * keys[:, None], batch[1]))[0].shape == (4, 2)
    for wrong in (lambda batch, _: (batch[0][:2], batch[1][:2]), lambda batch, _: batch[0], lambda *_: None):
        with pytest.raises(
            RunFailed, match=r"mine: augment\(batch, keys\) was given tensors of \[4, 4\] samples and returned"
        ):
            fetch(wrong)
