"""What a rank sends for a collective that is made by a ring, from what it gives to it: one table, by kind of collective.

What a rank gives says little of what goes over the wire: of a sum a ring sends nearly twice the tensor, of a gathered piece one copy for
each other rank. Backends choose their own algorithms; a ring is the yardstick, because it sends the least that a sum over ranks can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "scatter", "all_to_all", "barrier", "memory"]

# What a rank gives: a tensor to a sum, a sum that is cut or a broadcast; its own piece to a gather; what goes to the others to an
# all-to-all. The root alone gives to a scatter. Of a broadcast it is the mean over ranks: the last of the ring passes nothing on.
# "memory": through shared memory a rank writes its message once, and the others read it there.
_SENT: Mapping[Kind, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "reduce_scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: 1,
    "barrier": lambda n: 0,
    "memory": lambda n: 1,
}


def sent_bytes(kind: Kind, given: int, *, size: int) -> float:
    """Bytes a rank sends in a ring of `size` ranks, for a collective to which it gives `given` bytes.

    >>> sent_bytes("all_reduce", 1200, size=3), sent_bytes("all_gather", 400, size=3), sent_bytes("reduce_scatter", 1200, size=3)
    (1600.0, 800, 800.0)
    """
    return given * _SENT[kind](size)
