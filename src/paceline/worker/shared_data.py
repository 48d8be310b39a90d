"""The data of a run: loaded before the world is joined, and held once a machine where its ranks hold tensors on a CPU.

Ranks of one machine would hold the same tensors once each. Instead the first of them puts them, in the format of the run, into memory
that the others map. Of a built-in task only that rank loads at all. A user's train_data() runs on every rank, because it may have
side effects that the task needs. Each rank compares its result bit by bit with the shared copy, then frees its own.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.run import Spec
from paceline.spec.verdict import Note
from paceline.worker.measure.allocator import Left
from paceline.worker.same_data import Look, look, other_samples, same_samples
from paceline.worker.tasks.content import as_bytes
from paceline.worker.tasks.feed import Draws, Feed, TensorFeed
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.order import sample_keys
from paceline.worker.tasks.task import Task, users_code
from paceline.worker.transform import precision
from paceline.worker.world.collectives import agree, all_gather
from paceline.worker.world.join import World
from paceline.worker.world.seed import RandomStreams, kept, mixed, one_thread, seed_everything
from paceline.worker.world.shared import Address, Shared, find, make

_ALIGNED = 64
# elements compared at a time: a converted copy of all data would take the memory that sharing saves
_COMPARED = 1 << 22
_SPLITS = ("train", "test")
Layout = list[
    list[dict[str, Any]] | None
]  # for each split its tensors: shape, dtype, where; None where they are no tensors


@dataclass(frozen=True, slots=True)
class Feeds:
    """`looks`: what this rank has seen of the data it loaded itself, by split, to compare with the other ranks. `left`: what
    loading and placing it left with the allocator of this process, whoever holds it."""

    train: Feed
    test: Feed
    looks: dict[str, Look] | None = None
    left: Left = field(default_factory=Left)


@dataclass
class SharedFeed(TensorFeed):
    """Tensors in memory that all ranks of this machine have."""


class Promised:
    """Data that another rank of this machine loads. It is loaded here only if that rank has nothing to share."""

    kind = "tensors"

    def __init__(self, load: Callable[[], Feed]) -> None:
        self.load = load


def load_data(spec: Spec, task: Task, *, rank: int, local_rank: int = 0) -> Feeds:
    """Called before the world is joined: no rank waits in a collective while another loads, and loader processes fork cleanly."""
    assert isinstance(spec.threads, int)
    torch.set_num_threads(spec.threads)
    # ranks that see the same samples must augment them alike
    own = rank if SHARDINGS[spec.sharding].cuts_samples else 0
    loader: dict[str, Any] = {"workers": spec.workers, "pinned": spec.device == "cuda"}
    if _shares(spec) and task.source is None and local_rank > 0 and not spec.workers:

        def later(split: str) -> Feed:
            return _feed(spec, task, split, own, **loader)

        promised = [cast("Feed", Promised(lambda split=split: later(split))) for split in _SPLITS]
        return Feeds(promised[0], promised[1])
    feeds = {split: _feed(spec, task, split, own, **loader) for split in _SPLITS}
    looks = None
    if spec.topology.world_size > 1:
        looks = {split: look(feed) for split, feed in feeds.items()}
    elif (
        spec.inputs is not None and spec.inputs.seed == spec.seed
    ):  # one rank alone: as far as the look before the run went
        most = max((len(rows) for _, rows in spec.inputs.samples.values()), default=1)
        looks = {split: look(feed, most=most) for split, feed in feeds.items()}
    return Feeds(feeds["train"], feeds["test"], looks=looks)


def unlike_described(spec: Spec, feeds: Feeds) -> list[Note]:
    """A warning where the task gives this rank other data than it gave when it was looked into, under the same seed."""
    if feeds.looks is None or spec.inputs is None or spec.inputs.seed != spec.seed:
        return []
    by_split = {"train": feeds.train, "test": feeds.test}
    told = [name for name, (_, rows) in spec.inputs.samples.items() if rows]  # nothing is told of a stream
    return other_samples({name: (by_split[name].num, feeds.looks[name]) for name in told}, spec.inputs)


def place_data(spec: Spec, task: Task, feeds: Feeds, world: World, left: Left) -> Feeds:
    """All ranks together: the same samples, tensors of one machine once, everything in the format of the run and on its device.
    `left` is read around what is no message: the buffers that those take are no data."""
    looks = feeds.looks
    if _shares(spec) and world.size > 1:
        if task.source is not None:
            _same_lengths(feeds, task, world)
        feeds = _once_a_machine(spec, task, feeds, world, left)
    _same_lengths(feeds, task, world)
    same_samples(looks, world, name=task.name)
    with left:
        for feed in (feeds.train, feeds.test):
            feed.place(lambda value: precision.cast(value, to=precision.data_dtype(spec), device=world.device))
    return replace(feeds, left=left)


def load_split(spec: Spec, task: Task, split: str, device: torch.device) -> Feed:
    """One split for one process by itself, in the format of the run; drawn at random, it is what the run's ranks had. The random
    streams of this process stay as they are."""
    with kept(device):
        # both: the test data may be made with what train_data() has found out (a vocabulary, a mean)
        feeds = {name: _feed(spec, task, name, rank=0, workers=0, pinned=device.type == "cuda") for name in _SPLITS}
    feeds[split].place(lambda value: precision.cast(value, to=precision.data_dtype(spec), device=device))
    return feeds[split]


def _shares(spec: Spec) -> bool:
    return spec.device == "cpu" and spec.topology.processes > 1


def _feed(spec: Spec, task: Task, split: str, rank: int, *, workers: int, pinned: bool) -> Feed:
    """The seed is set anew for each split: what a task draws at random is the same on every rank, and a random split made in both
    functions is one split."""
    what = f"{task.name}: {split}_data()"
    seed_everything(spec.seed)
    with one_thread() if task.source is not None else nullcontext(), users_code(what, task.source):
        data = task.train_data() if split == "train" else task.test_data()
        return make_feed(
            data, what=what, collate=task.collate, workers=workers, draws=_draws(spec.seed, rank), pinned=pinned,
            most=spec.steps * spec.batch if split == "train" and spec.steps is not None else None,
        )  # fmt: skip


def _draws(seed: int, rank: int) -> Draws:
    def streams(epoch: int) -> RandomStreams:
        (key,) = sample_keys(np.zeros(1, dtype=np.int64), seed=seed, epoch=epoch)
        return RandomStreams(int(key) % 2**32)

    return Draws(mixed(seed, rank), seed_everything, streams)


def _same_lengths(feeds: Feeds, task: Task, world: World) -> None:
    """Different lengths would mean different numbers of steps: a hang, an hour later."""
    for split, feed in zip(_SPLITS, (feeds.train, feeds.test), strict=True):
        smallest, largest = agree(feed.num, world)
        if smallest != largest:
            raise RunFailed(
                f"{task.name}: {split}_data() gave {smallest} samples on one rank and {largest} on another", kind="data"
            )


def _once_a_machine(spec: Spec, task: Task, feeds: Feeds, world: World, left: Left) -> Feeds:
    """The first rank of each machine shares its tensors and sends their address; the others map them. Called by all ranks together."""
    mine = [feeds.train, feeds.test]
    with left:
        shared = _share(spec, mine) if world.local_rank == 0 else None
    here = int.from_bytes(hashlib.sha256(world.host.encode()).digest()[:7], "little")
    row = [here, world.local_rank, *(shared.address.row() if shared is not None else [0, 0, 0, 0])]
    rows = [tensor.tolist() for tensor in all_gather(torch.tensor(row, dtype=torch.int64), world)]
    if world.local_rank > 0:
        address = next((Address(*row[2:]) for row in rows if row[:2] == [here, 0] and row[2]), None)
        shared = find(address, populate=True) if address is not None else None
    layout = _read(shared) if shared is not None else [None, None]
    with left:
        shared_feeds = [
            _taken(feed, _tensors(shared, tensors) if shared is not None and tensors is not None else None, task, split, world)
            for split, feed, tensors in zip(_SPLITS, mine, layout, strict=True)
        ]  # fmt: skip
    agree(0, world)  # a barrier: all ranks have mapped the memory and compared
    if shared is not None:
        shared.close_door()
    return Feeds(shared_feeds[0], shared_feeds[1])


def _taken(
    feed: Feed | Promised, tensors: tuple[torch.Tensor, ...] | None, task: Task, split: str, world: World
) -> Feed:
    if isinstance(feed, Promised):
        return SharedFeed(tensors) if tensors is not None else feed.load()
    if tensors is None or not isinstance(feed, TensorFeed):
        return feed
    if world.local_rank > 0 and not _same(feed.tensors, tensors):
        raise RunFailed(
            f"{task.name}: {split}_data() gave other numbers on rank {world.rank} than on the first rank of its machine, so they would "
            "train on different samples under the same ids: draw from a generator with a fixed seed, and load the same files",
            kind="data",
        )
    feed.tensors = tensors  # so that no reference to this feed keeps the rank's own copy alive
    return SharedFeed(tensors, feed.form)


def _share(spec: Spec, feeds: Sequence[Feed]) -> Shared | None:
    """The tensors of the feeds that have any, in the format of the run, each once; None where no feed has."""
    to = precision.data_dtype(spec)
    layout: Layout = []
    places: dict[Any, tuple[int, torch.Tensor]] = {}
    end = 0
    for feed in feeds:
        if not isinstance(feed, TensorFeed) or not all(map(_plain, feed.tensors)):
            layout.append(None)
            continue
        rows: list[dict[str, Any]] = []
        for tensor in feed.tensors:
            dtype = to if tensor.is_floating_point() else tensor.dtype
            key = tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
            if key not in places:
                places[key] = (end, tensor)
                end = _aligned(end + tensor.numel() * dtype.itemsize)
            rows.append({"shape": list(tensor.shape), "dtype": str(dtype).removeprefix("torch."), "at": places[key][0]})
        layout.append(rows)
    if not places:
        return None
    words = json.dumps(layout).encode()
    shared = make(_aligned(8 + len(words)) + end, huge=True)
    view = shared.view
    view[: 8 + len(words)] = len(words).to_bytes(8, "little") + words
    for tensors, feed in zip(layout, feeds, strict=True):
        if tensors is not None and isinstance(feed, TensorFeed):
            for room, tensor in zip(_tensors(shared, tensors), feed.tensors, strict=True):
                room.copy_(tensor)
    return shared


def _plain(tensor: torch.Tensor) -> bool:
    """Whether it is an ordinary dense tensor in host memory, which a copy of bytes can hold."""
    usual = type(tensor) is torch.Tensor and tensor.layout == torch.strided and tensor.device.type == "cpu"
    return usual and not tensor.requires_grad and not tensor.is_quantized and tensor.numel() > 0


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def _read(shared: Shared) -> Layout:
    num = int.from_bytes(shared.view[:8], "little")
    return json.loads(bytes(shared.view[8 : 8 + num]))


def _tensors(shared: Shared, rows: list[dict[str, Any]]) -> tuple[torch.Tensor, ...]:
    view = shared.view
    start = _aligned(8 + int.from_bytes(view[:8], "little"))
    return tuple(
        torch.frombuffer(
            view, dtype=getattr(torch, row["dtype"]), count=math.prod(row["shape"]), offset=start + row["at"]
        ).view(row["shape"])
        for row in rows
    )


def _same(own: Sequence[torch.Tensor], shared: Sequence[torch.Tensor]) -> bool:
    """Whether the tensors are equal bit by bit in the format of the run; so a NaN equals itself."""
    if [tensor.shape for tensor in own] != [tensor.shape for tensor in shared]:
        return False
    return all(
        mine.is_floating_point() == theirs.is_floating_point()
        and (mine.is_floating_point() or mine.dtype == theirs.dtype)
        and all(as_bytes(a.to(theirs.dtype)).equal(as_bytes(b)) for a, b in _pairs(mine, theirs))
        for mine, theirs in zip(own, shared, strict=True)
    )  # fmt: skip


def _pairs(mine: torch.Tensor, theirs: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Some rows at a time, at least one."""
    each = max(1, _COMPARED // max(1, theirs[0].numel()))
    return zip(mine.split(each), theirs.split(each), strict=True)
