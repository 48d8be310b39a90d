"""Counts the collectives of a training step, what this rank gives to them and what it sends for them, in every step, where they are called.

Two figures, because one is not the other: what a rank gives is its own part of each message (the whole tensor of an all-reduce, its own
piece of an all-gather); what it then sends is that of a ring (`world/ring.py`). What a backend really sends is not known here.
"""

from __future__ import annotations

from paceline.worker.world.join import World


class Traffic:
    """`with traffic: step()` around every step, so that evaluations, clocks and logging are not in it."""

    def __init__(self, world: World) -> None:
        self._world, self._num_steps = world, 0
        self._messages, self._bytes, self._ring_bytes = 0, 0, 0.0
        self._before = (0, 0, 0.0)

    def __enter__(self) -> None:
        sent = self._world.sent
        self._before = sent.num, sent.bytes, sent.ring_bytes

    def __exit__(self, *error: object) -> None:
        sent, (num, given, by_ring) = self._world.sent, self._before
        self._messages += sent.num - num
        self._bytes += sent.bytes - given
        self._ring_bytes += sent.ring_bytes - by_ring
        self._num_steps += 1

    def per_step(self) -> dict[str, float]:
        """Means over all steps; nothing in a world of one, where there is nobody to send to."""
        if self._world.size == 1 or not self._num_steps:
            return {}
        return {
            "messages_per_step": self._messages / self._num_steps,
            "bytes_per_step": self._bytes / self._num_steps,
            "sent_bytes_per_step": self._ring_bytes / self._num_steps,
        }
