"""Reads the "python version" of CIFAR-10, which is pickled, without unpickling it: a pickle is a program, and ours runs none.

The instructions of a file are walked one by one, and only those that build numbers, text, lists, dictionaries and arrays of
bytes are followed. A name of anything else ends the reading before it could mean something. It must not import torch.
"""

from __future__ import annotations

import pickletools  # takes a pickle apart; it never executes one
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.base.errors import BadInput

# Everything a batch names: an array, its type, and (in files written again by Python 3) how bytes were spelled.
_NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
_BYTE_TYPES = ("u1", "|u1", "uint8")
_PLAIN = frozenset({
    "BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BINSTRING", "SHORT_BINSTRING",
})  # fmt: skip
_SILENT = frozenset({"PROTO", "FRAME"})


class _Mark:
    """Where a group of values begins on the stack."""


@dataclass
class _Name:
    """A name the file gave, allowed, and never looked up."""

    what: str


@dataclass
class _Type:
    """The type of an array's elements."""

    name: str


@dataclass
class _Array:
    """An array whose content is still to come."""

    value: np.ndarray[Any, np.dtype[np.uint8]] | None = None


def parse(blob: bytes, *, name: str) -> dict[str, Any]:
    """The dictionary in a batch file, keys as text, arrays of bytes as NumPy arrays; `name` is what the sentences call it."""
    try:
        batch = _Reader(name).run(blob)
    except BadInput:
        raise
    except Exception as error:  # a damaged file can fail in any of a hundred places, and all of them mean the same
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise BadInput(f"{name}: not a readable CIFAR-10 python batch ({reason}); fetch the file again") from None
    if not isinstance(batch, dict):
        raise BadInput(f"{name}: holds a {type(batch).__name__}; a CIFAR-10 python batch holds a dictionary")
    return {_text(key): value.value if isinstance(value, _Array) else value for key, value in batch.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise ValueError("something else where a text should be")
    return value.decode("latin-1") if isinstance(value, bytes) else value


class _Reader:
    """A stack, a memory, and the few instructions that are followed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}
        self.follow: dict[str, Callable[[Any], None]] = {
            "NONE": lambda _: self.stack.append(None),
            "NEWTRUE": lambda _: self.stack.append(True),
            "NEWFALSE": lambda _: self.stack.append(False),
            "MARK": lambda _: self.stack.append(_Mark()),
            "EMPTY_DICT": lambda _: self.stack.append({}),
            "EMPTY_LIST": lambda _: self.stack.append([]),
            "EMPTY_TUPLE": lambda _: self.stack.append(()),
            "TUPLE": lambda _: self.stack.append(tuple(self.group())),
            "TUPLE1": lambda _: self.stack.append(tuple(self.last(1))),
            "TUPLE2": lambda _: self.stack.append(tuple(self.last(2))),
            "TUPLE3": lambda _: self.stack.append(tuple(self.last(3))),
            "APPEND": lambda _: self.extend(self.last(1)),
            "APPENDS": lambda _: self.extend(self.group()),
            "SETITEM": lambda _: self.fill(self.last(2)),
            "SETITEMS": lambda _: self.fill(self.group()),
            "BINPUT": self.remember,
            "LONG_BINPUT": self.remember,
            "MEMOIZE": lambda _: self.remember(len(self.memory)),
            "BINGET": lambda place: self.stack.append(self.memory[place]),
            "LONG_BINGET": lambda place: self.stack.append(self.memory[place]),
            "GLOBAL": self.allow,
            "STACK_GLOBAL": lambda _: self.allow(" ".join(map(_text, self.last(2)))),
            "REDUCE": lambda _: self.make(*self.last(2)),
            "BUILD": lambda _: self.give(*self.last(2)),
        }

    def run(self, blob: bytes) -> Any:
        for instruction, argument, _ in pickletools.genops(blob):
            word = instruction.name
            if word in _PLAIN:
                # Python 2's strings are bytes; pickletools shows them as latin-1, in which nothing is lost.
                old = word in ("BINSTRING", "SHORT_BINSTRING")
                self.stack.append(str(argument).encode("latin-1") if old else argument)
            elif word in self.follow:
                self.follow[word](argument)
            elif word == "STOP":
                (value,) = self.stack
                return value
            elif word not in _SILENT:
                raise BadInput(
                    f"{self.name}: uses the pickle instruction {word}, which no CIFAR-10 batch needs; not read"
                )
        raise ValueError("it ends too early")

    def last(self, num: int) -> list[Any]:
        taken = [self.stack.pop() for _ in range(num)]
        return taken[::-1]

    def group(self) -> list[Any]:
        """Everything after the last mark, which goes too."""
        taken: list[Any] = []
        while not isinstance(value := self.stack.pop(), _Mark):
            taken.append(value)
        return taken[::-1]

    def extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError("values for something that is no list")
        target.extend(values)

    def fill(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise ValueError("entries for something that is no dictionary")
        if not all(
            isinstance(key, str | bytes) for key in values[::2]
        ):  # to look at a deeply nested key is to run out of stack
            raise ValueError("a key that is no text")
        target.update(zip(values[::2], values[1::2], strict=True))

    def remember(self, place: int) -> None:
        self.memory[place] = self.stack[-1]

    def allow(self, named: str) -> None:
        if named not in _NAMES:
            shown = named.replace(" ", ".")[:80]
            raise BadInput(
                f"{self.name}: asks for {shown}, which no CIFAR-10 batch needs; the file was not trusted, nothing ran"
            )
        self.stack.append(_Name(_NAMES[named]))

    def make(self, called: Any, given: tuple[Any, ...]) -> None:
        """What the file would have called, done by hand for the three things it may call."""
        what = called.what if isinstance(called, _Name) else ""
        if what == "array":
            self.stack.append(_Array())
        elif what == "dtype":
            self.stack.append(_Type(_text(given[0])))
        elif what == "encode":
            self.stack.append(given[0].encode("latin-1"))
        else:
            raise ValueError("a call of something that is no function")

    def give(self, target: Any, state: Any) -> None:
        """Content for an array. A type's own state (byte order, alignment) says nothing about single bytes."""
        if isinstance(target, _Array):
            _, shape, kind, by_columns, content = state
            if not isinstance(kind, _Type) or kind.name not in _BYTE_TYPES:
                raise BadInput(f"{self.name}: its array is not of bytes (uint8); this is no CIFAR-10 batch")
            flat = np.frombuffer(content, dtype=np.uint8)
            target.value = np.ascontiguousarray(flat.reshape(shape, order="F" if by_columns else "C"))
        elif not isinstance(target, _Type):
            raise ValueError("content for something that is no array")
        self.stack.append(target)
