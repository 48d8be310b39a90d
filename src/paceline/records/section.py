"""A part of a record, typed, and the one reader and writer of all parts. It knows no key of `result.json` itself.

The reader checks what it knows and keeps what it does not: a section that was read is written again as it was.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Self

from paceline.base.errors import BadInput

_NAMES: dict[Any, str] = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: the file, and the key inside it."""

    file: str
    key: str = ""

    def inside(self, key: object) -> Place:
        return Place(self.file, f"{self.key}.{key}" if self.key else str(key))

    def wrong(self, expected: str, value: object) -> BadInput:
        what = f"{self.file}: {self.key or 'the record'}"
        return BadInput(f"{what} should be {expected}, but is {repr(value)[:60]}; the file is damaged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The base of every part of a record: a field is a key of the JSON document, or another one where its metadata has a `key`.

    `document` is what a section was read from; one that is made here is written from its fields, but for the keys in `without`.
    """

    document: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    without: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def plain(self) -> dict[str, Any]:
        """The JSON document of this section."""
        if self.document is not None:
            return dict(self.document)
        return {key: plain(getattr(self, name)) for name, key in _keys(type(self)).items() if key not in self.without}

    def __getitem__(self, key: str) -> Any:
        """A value by its key in the JSON document, as scripts read it."""
        return self.plain[key]

    @classmethod
    def read(cls, value: Any, place: Place) -> Self:
        document = _mapping(value, place)
        hints, given = _hints(cls), dict[str, Any]()
        for one in fields(cls):
            key = _keys(cls).get(one.name)
            if key in document:
                given[one.name] = _value(hints[one.name], document[key], place.inside(key))
            elif key is not None and one.default is MISSING and one.default_factory is MISSING:
                raise BadInput(f"{place.file}: {place.inside(key).key} is missing; the file is damaged")
        return cls(document=document, **given)


class Scores(Mapping[str, float | None]):
    """Loss and scores by the task's own names, with the number of samples behind them. Empty where nothing was scored."""

    _COUNTS = ("evaluated", "seen", "num", "of")
    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, float | None] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> float | None:
        return self._values[name]

    def __iter__(self) -> typing.Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Scores({self._values!r})"

    @property
    def names(self) -> list[str]:
        """Of the figures; counts are none."""
        return [name for name in self._values if name not in self._COUNTS]

    @property
    def num_samples(self) -> float | None:
        return next((self._values[name] for name in self._COUNTS[:3] if name in self._values), None)

    @property
    def of(self) -> float | None:
        """The samples there are."""
        return self._values.get("of")

    @property
    def plain(self) -> dict[str, Any] | None:
        return dict(self._values) or None

    @classmethod
    def read(cls, value: Any, place: Place) -> Self:
        document = {} if value is None else _mapping(value, place)
        return cls({name: _value(float | None, score, place.inside(name)) for name, score in document.items()})


def plain(value: Any) -> Any:
    """A typed value as JSON has it."""
    if isinstance(value, Section | Scores):
        return value.plain
    if isinstance(value, tuple | list):
        items: list[Any] = [*value]
        return [plain(item) for item in items]
    if isinstance(value, Mapping):
        named: dict[str, Any] = {**value}
        return {name: plain(item) for name, item in named.items()}
    return value


@functools.cache
def _keys(kind: type[Section]) -> dict[str, str]:
    """Field -> key, in the order they are written."""
    own = [one for one in fields(kind) if one.name not in ("document", "without")]
    return {one.name: one.metadata.get("key", one.name) for one in own}


@functools.cache
def _hints(kind: type[Section]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _mapping(value: Any, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.wrong("an object", value)
    return {**value}


def _value(hint: Any, value: Any, place: Place) -> Any:
    if isinstance(hint, types.UnionType):  # ours are all `X | None`
        if value is None:
            return None
        (hint,) = (one for one in typing.get_args(hint) if one is not types.NoneType)
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin is dict:
        return {
            key: _value(typing.get_args(hint)[1], item, place.inside(key))
            for key, item in _mapping(value, place).items()
        }
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise place.wrong("a list", value)
        items: list[Any] = [*value]
        return tuple(_value(typing.get_args(hint)[0], item, place.inside(i)) for i, item in enumerate(items))
    if issubclass(hint, Section | Scores):
        return hint.read(value, place)
    fits = isinstance(value, (int, float) if hint is float else hint)
    if not fits or (isinstance(value, bool) and hint is not bool):
        raise place.wrong(_NAMES[hint], value)
    return value
