"""Counts the collectives of a training step and the bytes this rank puts into them, in every step, where they are called.

Bytes are this rank's own part of each message (`Sent`): the whole tensor of an all-reduce, its own piece of an all-gather.
What a backend sends over the wire for them is not known here; docs/sharding.md tells what a ring would send.
"""

from __future__ import annotations

from paceline.worker.world.join import World


class Traffic:
    """`with traffic: step()` around every step, so that evaluations, clocks and logging are not in it."""

    def __init__(self, world: World) -> None:
        self._world, self._num_steps = world, 0
        self._messages, self._bytes = 0, 0
        self._before = (0, 0)

    def __enter__(self) -> None:
        self._before = self._world.sent.num, self._world.sent.bytes

    def __exit__(self, *error: object) -> None:
        num, total = self._before
        self._messages += self._world.sent.num - num
        self._bytes += self._world.sent.bytes - total
        self._num_steps += 1

    def per_step(self) -> dict[str, float]:
        """Means over all steps; nothing in a world of one, where there is nobody to send to."""
        if self._world.size == 1 or not self._num_steps:
            return {}
        return {"messages_per_step": self._messages / self._num_steps, "bytes_per_step": self._bytes / self._num_steps}
