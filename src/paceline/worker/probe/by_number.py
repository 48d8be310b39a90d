"""What `on_step` and `on_epoch` do besides setting values: whether they change the data, and whether they draw at random."""

from __future__ import annotations

from paceline.base.errors import RunFailed
from paceline.worker.probe.samples import host_states
from paceline.worker.tasks.by_number import ByNumber
from paceline.worker.tasks.content import digest
from paceline.worker.tasks.dataset_feed import DatasetFeed
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.task import Task
from paceline.worker.world.seed import seed_host

_FETCHED = 4  # samples


def moves_data(task: Task, feed: Feed, by_number: ByNumber, *, steps: int, epochs: int) -> bool:
    """Whether `on_step` or `on_epoch` changes the samples themselves: loader processes have copies that it does not reach. They are
    left as at the start."""
    if not isinstance(feed, DatasetFeed) or (task.on_step is None and task.on_epoch is None):
        return False
    dataset = feed.dataset

    def fetched(step: int, epoch: int) -> list[int]:
        by_number.before_epoch(epoch)
        by_number.before_step(step)
        found: list[int] = []
        for place in range(0, feed.num, max(1, feed.num // _FETCHED)):
            seed_host(0)
            found.append(digest(dataset[place]))
        return found

    first, late, again = fetched(0, 0), fetched(steps - 1, epochs - 1), fetched(0, 0)
    return first != late and first == again


def refuse_drawn(task: Task, by_number: ByNumber) -> None:
    """What a task sets by the step's number must follow from it: each rank would draw something else."""
    ends: list[list[bytes | None]] = []
    for seed in (1, 2):
        seed_host(seed)
        before = host_states()
        by_number.before_epoch(0)
        by_number.before_step(0)
        ends.append([late if late != early else None for early, late in zip(before, host_states(), strict=True)])
    # what is the same from two seeds was seeded, and is the same everywhere
    if any(one is not None and one != other for one, other in zip(*ends, strict=True)):
        hook = "on_step" if task.on_epoch is None else "on_epoch" if task.on_step is None else "on_step or on_epoch"
        raise RunFailed(
            f"{task.name}: {hook} draws random numbers; what it sets must follow from the number of the step alone, so that all "
            "ranks, and a run that is taken up again, set the same: draw from torch.Generator().manual_seed(step)",
            kind="task",
        )
