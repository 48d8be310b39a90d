"""The trained weights on disk, as safetensors, and their fingerprint. Never pickle.

A model that is spread over ranks leaves the same file and the same fingerprint as one that is not: its tensors are put together one
at a time, and a table that is cut some rows at a time, so that nobody ever holds it whole. All ranks take part.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_model, save_model

from paceline.base.errors import RunFailed
from paceline.base.files import unfinished

_WORDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class InParts(Protocol):
    """A tensor of which each rank has a part; `pieces` gives it to every rank, in order."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def pieces(self) -> Iterator[torch.Tensor]: ...


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tensor of the model's state, as if it were whole."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    source: Any  # a tensor, a DTensor or one in parts

    @property
    def nbytes(self) -> int:
        numbers = 1
        for size in self.shape:
            numbers *= size
        return numbers * torch.empty((), dtype=self.dtype).element_size()

    def raw(self) -> Iterator[Any]:
        """The tensor's bytes, little-endian, in pieces. All ranks must call it together for a tensor that is spread over them."""
        if isinstance(self.source, torch.Tensor):
            broadcast: Any = self.source
            yield _bytes(broadcast.full_tensor() if _is_sharded(self.source) else self.source)
        else:
            for piece in self.source.pieces():
                yield _bytes(piece)


def _is_sharded(tensor: torch.Tensor) -> bool:
    """A DTensor, told by what it has: importing its class costs half a second that most runs need not pay."""
    return hasattr(tensor, "full_tensor")


def _bytes(tensor: torch.Tensor) -> Any:
    """The bytes for a hash or a file, little-endian: a contiguous CPU tensor's own memory on most machines."""
    values = tensor.detach().cpu().contiguous()
    raw = values.reshape(-1).view(torch.uint8).numpy()
    if sys.byteorder == "big" and values.element_size() > 1:
        return raw.reshape(-1, values.element_size())[:, ::-1].tobytes()
    return raw


def _entries(model: torch.nn.Module, in_parts: Mapping[str, InParts]) -> list[_Entry]:
    """All tensors of the model's state, ordered by name."""
    entries: list[_Entry] = []
    for name, tensor in sorted(model.state_dict(keep_vars=True).items()):
        part = in_parts.get(name)
        if part is not None:
            entries.append(_Entry(name, part.dtype, part.shape, part))
        else:
            entries.append(_Entry(name, tensor.dtype, tuple(tensor.shape), tensor))
    return entries


def fingerprint(model: torch.nn.Module, in_parts: Mapping[str, InParts] | None = None) -> str:
    """sha256 over name, dtype, shape and little-endian bytes of every parameter and buffer, in order of name.

    Each rank takes its own: what is on every rank is hashed as it is there.
    """
    digest = hashlib.sha256()
    for entry in _entries(model, in_parts or {}):
        digest.update(f"{entry.name} {str(entry.dtype).removeprefix('torch.')} {list(entry.shape)}\n".encode())
        for raw in entry.raw():
            digest.update(raw)
    return digest.hexdigest()


def save(
    model: torch.nn.Module, path: Path, *, in_parts: Mapping[str, InParts] | None = None, writes: bool = True
) -> None:
    """Tied weights are stored once; the file appears whole or not at all. Every rank calls it, and the one that `writes` writes."""
    entries = _entries(model, in_parts or {})
    if not any(not isinstance(entry.source, torch.Tensor) or _is_sharded(entry.source) for entry in entries):
        if writes:
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished(path) as name:
                save_model(model, str(name))
        return
    entries, tied = _once(entries)
    if not writes:
        for entry in entries:
            for _ in entry.raw():
                pass
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(path) as name, name.open("wb") as file:
        file.write(_header(entries, tied))
        for entry in entries:
            for raw in entry.raw():
                file.write(raw)
        file.flush()


def _once(entries: list[_Entry]) -> tuple[list[_Entry], dict[str, str]]:
    """(what is written, {another name of it: its name}), widest numbers first, so that each begins at a multiple of its size."""
    names: dict[int, str] = {}
    kept = [entry for entry in entries if names.setdefault(id(entry.source), entry.name) == entry.name]
    tied = {entry.name: names[id(entry.source)] for entry in entries if names[id(entry.source)] != entry.name}
    return sorted(kept, key=lambda entry: (-torch.empty((), dtype=entry.dtype).element_size(), entry.name)), tied


def _header(entries: list[_Entry], tied: dict[str, str]) -> bytes:
    """safetensors: eight bytes that say how long the JSON after them is, which says where each tensor's bytes are."""
    rows: dict[str, Any] = {"__metadata__": tied} if tied else {}
    start = 0
    for entry in entries:
        if entry.dtype not in _WORDS:
            raise RunFailed(f"{entry.name} is {entry.dtype}, which safetensors has no word for here", kind="mismatch")
        rows[entry.name] = {
            "dtype": _WORDS[entry.dtype], "shape": list(entry.shape), "data_offsets": [start, start + entry.nbytes],
        }  # fmt: skip
        start += entry.nbytes
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def restore(model: torch.nn.Module, path: Path) -> None:
    load_model(model, str(path), strict=True)
