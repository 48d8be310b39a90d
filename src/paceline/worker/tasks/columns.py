"""Arrays out of what people keep data in: NumPy, lists, columns and frames of pandas and polars. Neither library is imported here: whose
data is of their kinds has imported them.

What is no numbers (texts, sequences of different lengths) stays a list, and what would be guessed (missing values, words as inputs) is
refused by the column's name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.worker.tasks import tree
from paceline.worker.tasks.targets import target_name

_LIBRARIES = ("pandas", "polars")
_NUMBERS = "biufc"  # NumPy's kinds


class Listed:
    """A column of other things than numbers."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)


class Rows:
    """Columns of which some are no tensors, as a map-style Dataset. `form`: of a sample."""

    def __init__(self, columns: Sequence[torch.Tensor | Listed], form: tree.Form) -> None:
        self._columns = [column.rows if isinstance(column, Listed) else column for column in columns]
        self._form = form

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: int) -> Any:
        return self._form.of(iter([column[index] for column in self._columns]))


def is_frame(value: Any) -> bool:
    return _library(value) is not None and hasattr(value, "columns")


def is_column(value: Any) -> bool:
    """Whether it holds one thing a sample, whatever its library."""
    return isinstance(value, torch.Tensor | np.ndarray | list) or _library(value) is not None


def _library(value: Any) -> str | None:
    home = type(value).__module__.partition(".")[0]
    return home if home in _LIBRARIES and hasattr(value, "to_numpy") else None


def tensors_in(value: Any, what: str, *, is_target: bool = False) -> Any:
    """The same tuples and dicts with a tensor, or a `Listed`, in place of each column."""
    if isinstance(value, Mapping):
        target = target_name(value)
        return {
            str(name): tensors_in(part, f"{what}[{name!r}]", is_target=is_target or name == target)
            for name, part in value.items()
        }
    if isinstance(value, tuple):
        last = len(value) - 1
        return tuple(
            tensors_in(part, what, is_target=is_target or index == last > 0) for index, part in enumerate(value)
        )
    column = _matrix(value, what) if is_frame(value) else _column(value, what)
    # Class labels come as any integer type; torch's losses want int64. Inputs keep the type they have.
    if is_target and isinstance(column, torch.Tensor) and not column.is_floating_point() and not column.is_complex():
        return column.long()
    return column


def named_columns(frame: Any) -> dict[str, Any]:
    """A frame by itself: its columns, of which one may be the target."""
    return {str(name): frame[name] for name in frame.columns}


def _matrix(frame: Any, what: str) -> torch.Tensor:
    """All columns side by side, [N, C]; a frame of one column too."""
    columns = {name: _column(column, f"{what}: column {name!r}") for name, column in named_columns(frame).items()}
    words = [name for name, column in columns.items() if not isinstance(column, torch.Tensor)]
    if words or not columns:
        raise RunFailed(
            f"{what} returned a frame with columns that are no numbers: {', '.join(words) or 'it has none'}; leave them out, or make "
            "numbers of them (a code for each word, or a column for each)",
            kind="data",
        )
    arrays = [column.numpy() for column in columns.values() if isinstance(column, torch.Tensor)]
    return _from_numpy(np.stack(arrays, axis=1))


def _column(value: Any, what: str) -> torch.Tensor | Listed:
    if isinstance(value, torch.Tensor):
        return value
    library = _library(value)
    if library is not None:
        value = _of_library(value, what, library)
    if isinstance(value, list):
        return _of_list(value)
    if value.dtype.kind in _NUMBERS:
        return _from_numpy(value)
    if value.dtype.kind in "mM":
        raise RunFailed(
            f"{what} has dates or times: make numbers of them, in the unit that the model shall see", kind="data"
        )
    return Listed(value.tolist())


def _of_library(value: Any, what: str, library: str) -> Any:
    """An array, or a list of words."""
    missing = int(value.null_count() if library == "polars" else value.isna().sum())
    if missing:
        raise RunFailed(
            f"{what} has missing values ({missing}): fill them in, or leave the rows out (fillna, dropna; fill_null, drop_nulls)",
            kind="data",
        )
    array = np.asarray(value.to_numpy())
    if array.dtype.hasobject:  # pandas' own kinds of numbers, a column of arrays, or words
        return array.tolist()
    return array


def _of_list(value: list[Any]) -> torch.Tensor | Listed:
    first = value[0] if value else None
    if isinstance(first, torch.Tensor):
        alike = all(isinstance(item, torch.Tensor) and item.shape == first.shape for item in value)
        return torch.stack(value) if alike else Listed(value)
    try:
        array = np.asarray(value)
    except ValueError:  # of different lengths
        return Listed(value)
    return _from_numpy(array) if array.dtype.kind in _NUMBERS else Listed(value)


def _from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
    with warnings.catch_warnings():  # a file mapped for reading alone: nothing here writes into a data set
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))


def columns_of(value: Any) -> Iterator[Any]:
    """What `tensors_in` would take for columns."""
    if isinstance(value, Mapping | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from columns_of(part)
    else:
        yield value
