"""The collectives Paceline uses, each a no-op in a world of one. A peer that went away becomes `PeerLost`, never a bare RuntimeError."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator

import torch
import torch.distributed as dist

from paceline.base.errors import RunFailed
from paceline.worker.world.join import World
from paceline.worker.world.shared_all_reduce import Gone, Room

# A broadcast of at most this many bytes goes through shared memory where there is some: a backend takes a millisecond for it, and
# its threads take a core from a rank meanwhile.
_FEW_BYTES = 1 << 14


class PeerLost(RunFailed):
    """Another rank left in the middle of a collective: a consequence, never the cause of a failure."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"another rank went away ({str(error).splitlines()[0][:200]})", kind="peer")


@contextlib.contextmanager
def together() -> Generator[None]:
    try:
        yield
    except RuntimeError as error:
        # gloo raises RuntimeError for everything: only these words mean a lost peer. An unknown dtype, say, is our own fault.
        if any(
            word in str(error).lower()
            for word in ("connection", "timed out", "timeout", "closed", "socket", "reset", "broken pipe", "no route")
        ):
            raise PeerLost(error) from error
        raise


def all_reduce_(tensor: torch.Tensor, world: World) -> torch.Tensor:
    """Sum over ranks, in place: through shared memory if the run uses it (`messages=memory`), else by the backend."""
    if world.size == 1:
        return tensor
    if world.shared_all_reduce is not None and world.shared_all_reduce.takes(tensor):
        with _lost():
            world.shared_all_reduce.all_reduce_(tensor)
        world.count("memory", tensor.nbytes)
    else:
        with together():
            dist.all_reduce(tensor)
        world.sent.by_backend += 1
        world.count("all_reduce", tensor.nbytes)
    return tensor


class Exchange:
    """An all-reduce in three calls, for messages of one size that are sent every step. Write this rank's message into `own`, call
    `publish`, do other work if there is any, and call `wait`. Then sum `messages`, and call `release` when they have been read.

    With shared memory `publish` makes the message visible, and `messages` holds one message per rank, in rank order: `own`, and the
    other ranks' slots. With a backend `publish` does nothing, `wait` runs the all-reduce in place, and `messages` holds `own` only.
    """

    def __init__(self, num: int, dtype: torch.dtype, world: World) -> None:
        self._world, self._shared_all_reduce, self._num_bytes = world, None, num * dtype.itemsize
        self.own = Room(bytearray(self._num_bytes), dtype)
        self.messages = [self.own.flat]
        shared_all_reduce = world.shared_all_reduce
        rooms = shared_all_reduce.rooms(num, dtype) if shared_all_reduce is not None else None
        if shared_all_reduce is not None and rooms is not None:
            self._shared_all_reduce, self._message = shared_all_reduce, shared_all_reduce.message(self.own.flat)
            self.messages = [self.own.flat if rank == world.rank else room.flat for rank, room in enumerate(rooms)]

    def publish(self) -> bool:
        """Make `own` visible to the other ranks. False with a backend, which sends it in `wait` instead."""
        if self._shared_all_reduce is None:
            return False
        try:  # not `with _lost()`, which takes a microsecond: a step takes only some hundred
            self._shared_all_reduce.publish(self._message)
        except Gone as error:
            raise PeerLost(error) from error
        return True

    def wait(self) -> None:
        """Return when the messages of all ranks are in `messages`."""
        if self._shared_all_reduce is None:
            all_reduce_(self.own.flat, self._world)
            return
        try:
            self._shared_all_reduce.wait(self._message)
        except Gone as error:
            raise PeerLost(error) from error
        self._world.count("memory", self._num_bytes)

    def release(self) -> None:
        """Tell the other ranks that this one has read `messages`: they may write the next ones."""
        if self._shared_all_reduce is not None:
            self._shared_all_reduce.release()


@contextlib.contextmanager
def _lost() -> Generator[None]:
    try:
        yield
    except Gone as error:
        raise PeerLost(error) from error


def carried(world: World) -> str:
    """What carried the all-reduces so far, as a value of the setting `messages`; "memory" only if all of them went through it."""
    if world.shared_all_reduce is None:
        return "backend"
    return "memory+backend" if world.sent.by_backend else "memory"


def all_gather(tensor: torch.Tensor, world: World) -> list[torch.Tensor]:
    """The tensors of all ranks, in rank order. All must have the same shape."""
    if world.size == 1:
        return [tensor]
    rows = [torch.empty_like(tensor) for _ in range(world.size)]
    with together():
        dist.all_gather(rows, tensor.contiguous())
    return rows


def all_to_all(pieces: list[torch.Tensor], shapes: list[tuple[int, int]], world: World) -> list[torch.Tensor]:
    """Send `pieces[i]` to rank i, and return what each rank sent to this one. `shapes`: those of the tensors that arrive."""
    if world.size == 1:
        return pieces
    dtype, device, each = pieces[0].dtype, pieces[0].device, pieces[0].element_size()
    # as bytes: gloo does not know every dtype
    message = torch.cat([piece.reshape(-1) for piece in pieces]).view(torch.uint8)
    go = [piece.numel() * each for piece in pieces]
    come = [rows * columns * each for rows, columns in shapes]
    room = torch.empty(sum(come), dtype=torch.uint8, device=device)
    with together():
        dist.all_to_all_single(room, message, come, go)
    world.count("all_to_all", sum(go) - go[world.rank])
    return [part.view(dtype).view(shape) for part, shape in zip(room.split(come), shapes, strict=True)]


def broadcast(tensor: torch.Tensor, world: World, *, src: int = 0) -> torch.Tensor:
    """Copy the values of rank `src` to every rank, in place."""
    if world.size > 1:
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)  # as bytes: gloo does not know every dtype
        if world.shared_all_reduce is not None and tensor.device.type == "cpu" and flat.numel() <= _FEW_BYTES:
            message = flat.float() * (world.rank == src)  # the other ranks add zeros, so the sum is the bytes of `src`
            with _lost():
                world.shared_all_reduce.all_reduce_(message)
            flat = message.to(torch.uint8)
        else:
            with together():
                dist.broadcast(flat, src=src)
        tensor.copy_(flat.view(tensor.dtype).view(tensor.shape))
    return tensor


def broadcast_json(value: object, world: World) -> object:
    """A small plain value of rank 0 on every rank; as JSON bytes, because torch's own object collectives unpickle."""
    if world.size == 1:
        return value
    blob = json.dumps(value).encode()
    size = broadcast(torch.tensor([len(blob)]), world)
    room = torch.zeros(int(size.item()), dtype=torch.uint8)
    if world.rank == 0:
        room.copy_(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
    return json.loads(bytes(broadcast(room, world).tolist()))


def all_reduce_max(values: list[float], world: World) -> list[float]:
    """The maximum of each value over all ranks."""
    if world.size == 1:
        return values
    row = torch.tensor(values, dtype=torch.float64)
    with together():
        dist.all_reduce(row, op=dist.ReduceOp.MAX)
    return row.tolist()


def agree(value: int, world: World) -> tuple[int, int]:
    """(smallest, largest) of a number over ranks: equal when all ranks see the same."""
    if world.size == 1:
        return value, value
    pair = torch.tensor([value, -value], dtype=torch.int64)
    with together():
        dist.all_reduce(pair, op=dist.ReduceOp.MAX)
    return -int(pair[1].item()), int(pair[0].item())
