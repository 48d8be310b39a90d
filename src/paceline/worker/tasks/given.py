"""From what a task's `train_data()` or `test_data()` returned to a feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, default_collate

from paceline.base.errors import RunFailed
from paceline.worker.tasks import tree
from paceline.worker.tasks.ahead import is_mapped
from paceline.worker.tasks.columns import (
    Listed,
    Rows,
    columns_of,
    is_column,
    is_frame,
    named_columns,
    tensors_in,
)
from paceline.worker.tasks.dataset_feed import DatasetFeed
from paceline.worker.tasks.feed import Collate, Draws, Feed, MappedFeed, TensorFeed
from paceline.worker.tasks.loader import Loader, of_loader
from paceline.worker.tasks.stream_feed import StreamFeed

_HUGGING_FACE = "datasets"  # the library's own name; who returns its data has imported it


def given(data: Any, what: str) -> Loader:
    """What a loader was made of; anything else is data as it is."""
    found = of_loader(data, what) if isinstance(data, DataLoader) else Loader(data, default_collate)
    return replace(found, data=_of_hugging_face(found.data))


def make_feed(
    data: Any, *, what: str, collate: Collate | None, workers: int = 0, draws: Draws | None = None, pinned: bool = False,
    most: int | None = None,
) -> Feed:  # fmt: skip
    """`collate`: the task's own. `most`: samples that the run takes of a stream without a length."""
    draws = draws or Draws()
    taken = given(data, what)
    data, collate = taken.data, collate or taken.collate
    if collate is default_collate:
        data = _at_once(data)
    if (columns := _in_columns(data, what)) is not None:
        data = _joined(columns, data, what, pinned=pinned)
    if isinstance(data, TensorFeed | MappedFeed):
        feed: Feed = data
    elif isinstance(data, IterableDataset):
        num = _length(data)
        if num is None and most is None:
            raise RunFailed(_no_length(data, what), kind="data")
        feed = StreamFeed(data, collate, most or 0 if num is None else num, draws.streams, ends=num is not None)
    elif hasattr(data, "__getitem__") and not isinstance(data, str | bytes | Mapping):
        if (num := _length(data)) is None:
            raise RunFailed(_no_length(data, what), kind="data")
        feed = DatasetFeed(data, collate, workers, draws, num=num, pinned=pinned)
    else:
        raise RunFailed(_unknown(data, what), kind="data")
    if feed.num == 0:
        raise RunFailed(f"{what} returned no samples", kind="data")
    return feed


def _at_once(data: Any) -> Any:
    """The tensors of torch's own data sets that hold some, or of a part of one (`random_split`): what they give, sample by sample."""
    if type(data) is TensorDataset:
        return data.tensors
    if type(data) is Subset and isinstance(tensors := _at_once(data.dataset), tuple):
        return tuple(tensor[torch.as_tensor(data.indices, dtype=torch.int64)] for tensor in tensors)
    return data


def _in_columns(data: Any, what: str) -> Any:
    """The data with a tensor or a list for each column; None where it is no columns but samples, or something else."""
    if isinstance(data, torch.Tensor | np.ndarray):
        return tensors_in(data, what)
    if is_frame(data):
        return tensors_in(named_columns(data), what)
    if isinstance(data, list) and data and all(is_column(part) and not isinstance(part, list) for part in data):
        data = tuple(data)
    if not isinstance(data, tuple | Mapping) or not data:
        return None
    parts = [*columns_of(data)]
    return tensors_in(data, what) if parts and all(map(is_column, parts)) and not _is_samples(data) else None


def _is_samples(data: Any) -> bool:
    """A tuple of tuples is samples, not columns."""
    return isinstance(data, tuple) and all(isinstance(part, tuple) for part in data)


def _joined(columns: Any, data: Any, what: str, *, pinned: bool) -> Any:
    """Tensors of one length as a feed; with lists among them, a Dataset of rows."""
    leaves, form = tree.flat(columns)
    if not all(isinstance(leaf, Listed) or leaf.dim() for leaf in leaves):
        raise RunFailed(f"{what} returned a single number; it must return one row a sample", kind="data")
    sizes = [len(leaf) for leaf in leaves]
    if len(set(sizes)) > 1:
        raise RunFailed(f"{what} returned arrays of different lengths: {', '.join(map(str, sizes))}", kind="data")
    if any(isinstance(leaf, Listed) for leaf in leaves):
        return Rows(leaves, form)
    plain = (
        isinstance(columns, tuple)
        and len(columns) == len(leaves)
        and all(isinstance(part, torch.Tensor) for part in columns)
    )
    own_form = None if plain else form
    if any(map(is_mapped, columns_of(data))):
        return MappedFeed(tuple(leaves), own_form, pinned=pinned)
    return TensorFeed(tuple(leaves), own_form)


def _of_hugging_face(data: Any) -> Any:
    """A `datasets.Dataset` gives lists of Python's numbers unless it is told otherwise, which a collate would turn around."""
    if type(data).__module__.partition(".")[0] != _HUGGING_FACE:
        return data
    if getattr(data, "format", {"type": "own"}).get("type") is None or (
        not hasattr(data, "__getitem__") and not isinstance(data, IterableDataset)
    ):
        return data.with_format("torch")
    return data


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _no_length(dataset: Any, what: str) -> str:
    return (
        f"{what} returned a {type(dataset).__name__} without a length: define __len__, so that every sample can be counted "
        "(a stream of training data without an end needs none where steps= is given)"
    )


def _unknown(data: Any, what: str) -> str:
    if isinstance(data, Mapping) and type(data).__module__.partition(".")[0] == _HUGGING_FACE:
        return f"{what} returned all splits ({', '.join(map(str, data))}); return one of them"
    return (
        f"{what} returned a {type(data).__name__}; it must return (inputs, targets) as tensors, NumPy arrays, lists, or columns of pandas "
        "or polars; a dict of these, a frame; a map-style Dataset, an IterableDataset, a DataLoader, or a Dataset of Hugging Face"
    )
