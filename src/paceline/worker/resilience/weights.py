"""The trained weights on disk, as safetensors, and their fingerprint. Never pickle."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch
from safetensors.torch import load_model, save_model

from paceline.base.files import unfinished


def save(model: torch.nn.Module, path: Path) -> None:
    """Tied weights are stored once; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(path) as name:
        save_model(model, str(name))


def restore(model: torch.nn.Module, path: Path) -> None:
    load_model(model, str(path), strict=True)


def fingerprint(model: torch.nn.Module) -> str:
    """sha256 over name, dtype, shape and little-endian bytes of every parameter and buffer, in order of name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {str(values.dtype).removeprefix('torch.')} {list(values.shape)}\n".encode())
        raw = values.reshape(-1).view(torch.uint8).numpy()
        if sys.byteorder == "big" and values.element_size() > 1:
            raw = raw.reshape(-1, values.element_size())[:, ::-1]
        digest.update(raw.tobytes())
    return digest.hexdigest()
