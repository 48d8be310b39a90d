"""A small transformer that predicts the next byte of a text: the task for sharding, recomputation and attention.
It is written as a user writes a task and must not know any setting, nor how many processes there are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from paceline.base.errors import BadInput, RunFailed
from paceline.worker.tasks import text

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_BYTES = 256
_INITIAL = 0.02  # deviation of the first weights, as in GPT-2: the first loss is then ln 256
_SHORTEST = 8  # bytes that a ragged window predicts at least
_NOTHING = -100  # a target where there is only padding; torch's own cross entropy leaves it out


class Block(nn.Module):
    """Attention and a feed-forward layer, each after its own norm and beside a path that leaves the input as it is.

    Query, key and value are layers of their own, so that cutting each by its outputs cuts it by whole heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.norm1 = nn.LayerNorm(width)
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm1(x)
        query, key, value = (self._heads(part(normal)) for part in (self.query, self.key, self.value))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))

    def _heads(self, x: Tensor) -> Tensor:
        """[batch, heads, time, head_width]; as many heads as are here, which are fewer where the layers are cut."""
        if x.shape[-1] % self.head_width:
            raise RunFailed(
                f"{x.shape[-1]} outputs here are no whole number of heads of {self.head_width}: choose heads that the "
                "number of processes divides",
                kind="task",
            )
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)


class GPT(nn.Module):
    """Bytes in, for each the logits of the byte after it out."""

    def __init__(self, layers: int, heads: int, width: int, context: int) -> None:
        super().__init__()
        self.token = nn.Embedding(_BYTES, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _BYTES, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                # What is added to the straight path 2 * layers times starts smaller, so that its sum does not grow.
                added = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=_INITIAL / math.sqrt(2 * layers) if added else _INITIAL)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class _Ragged(Dataset[tuple[Tensor, Tensor]]):
    """The same windows, each ended early, at a place of its own: a prefix shares no byte with another window either."""

    def __init__(self, tokens: Tensor, lengths: list[int]) -> None:
        self.tokens, self.lengths = tokens, lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.tokens[index, : self.lengths[index] + 1]
        return window[:-1], window[1:]


@dataclass(eq=False)
class Transformer:
    """A sample is a window of context + 1 bytes: all but the last go in, all but the first are to be predicted.

    Ragged windows have 8 bytes up to context to predict. Each then counts the same, however long it is: a mean over
    samples adds up over ranks and parts of a batch, whatever length each of them was padded to."""

    better: ClassVar = "higher"

    data: str | None = None
    layers: int = 2
    heads: int = 4
    width: int = 128
    context: int = 64
    num_train: int = 4_000
    num_test: int = 500
    ragged: bool = False

    def __post_init__(self) -> None:
        counts = {
            "layers": self.layers, "heads": self.heads, "width": self.width, "context": self.context,
            "num_train": self.num_train, "num_test": self.num_test,
        }  # fmt: skip
        problems = [f"{name}={value}: must be at least 1" for name, value in counts.items() if value < 1]
        if not problems and self.width % self.heads:
            problems.append(
                f"width={self.width} with heads={self.heads}: the heads share the width evenly, so it must be a multiple"
            )
        if self.ragged and 1 <= self.context < _SHORTEST:
            problems.append(f"context={self.context} with ragged=true: windows have {_SHORTEST} bytes up to context")
        if problems:
            raise BadInput(problems)
        self.folder = None if self.data is None else Path(self.data).expanduser()

    def model(self) -> nn.Module:
        return GPT(self.layers, self.heads, self.width, self.context)

    def train_data(self) -> tuple[Tensor, Tensor] | _Ragged:
        windows = self._files[: self.num_train] if self.folder else self._generated(self.num_train, stream=1)
        return self._samples(windows, stream=3)

    def test_data(self) -> tuple[Tensor, Tensor] | _Ragged:
        windows = self._files[-self.num_test :] if self.folder else self._generated(self.num_test, stream=2)
        return self._samples(windows, stream=4)

    def collate(self, samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Ragged windows, padded to the longest of the batch. What stands behind a window is seen by no byte in it."""
        inputs, targets = ([sample[part] for sample in samples] for part in (0, 1))
        return pad_sequence(inputs, batch_first=True), pad_sequence(targets, batch_first=True, padding_value=_NOTHING)

    def loss(self, outputs: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        target = batch[1]
        if self.ragged:
            return _cross_entropy_each(outputs, target).sum(), len(target)
        return _cross_entropy(outputs, target), target.numel()

    def score(self, outputs: Tensor, batch: tuple[Tensor, Tensor]) -> dict[str, tuple[Tensor, int]]:
        """Bytes guessed right, and the information still missing per byte: the generated text has a known least."""
        target = batch[1]
        right = outputs.argmax(dim=-1) == target
        if self.ragged:
            shares = right.sum(dim=1, dtype=torch.float64) / (target != _NOTHING).sum(dim=1)
            bits = _cross_entropy_each(outputs.detach(), target).sum() / math.log(2)
            return {"accuracy": (shares.sum(), len(target)), "bits_per_byte": (bits, len(target))}
        bits = _cross_entropy(outputs.detach(), target) / math.log(2)
        return {"accuracy": (right.sum(), target.numel()), "bits_per_byte": (bits, target.numel())}

    def units(self, model: nn.Module) -> list[nn.Module]:
        return list(model.get_submodule("blocks").children())

    def tensor_plan(self, model: nn.Module) -> dict[str, ParallelStyle]:
        """Cut by outputs, then by inputs: between the two nothing has to be exchanged."""
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        plan: dict[str, ParallelStyle] = {}
        for number in range(len(self.units(model))):
            plan |= {f"blocks.{number}.{name}": ColwiseParallel() for name in ("query", "key", "value", "up")}
            plan |= {f"blocks.{number}.{name}": RowwiseParallel() for name in ("out", "down")}
        return plan

    def _generated(self, num: int, *, stream: int) -> text.Bytes:
        length = self.context + 1
        return text.windows(text.generate(num * length, stream=stream), length)

    @cached_property
    def _files(self) -> text.Bytes:
        """Training windows are the first ones and test windows the last: no byte is in both."""
        assert self.folder is not None
        windows = text.windows(text.read(self.folder), self.context + 1)
        if len(windows) < self.num_train + self.num_test:
            raise BadInput(
                f"data={self.folder}: its text has {len(windows)} windows of {self.context + 1} bytes, fewer than "
                f"num_train={self.num_train} and num_test={self.num_test} together: lower one of them"
            )
        return windows

    def _samples(self, windows: text.Bytes, *, stream: int) -> tuple[Tensor, Tensor] | _Ragged:
        """Two views of one tensor; ragged windows one by one. `stream`: of their lengths."""
        tokens = torch.from_numpy(windows.astype("int64"))
        if self.ragged:
            return _Ragged(tokens, text.lengths(len(tokens), _SHORTEST, self.context, stream=stream))
        return tokens[:, :-1], tokens[:, 1:]


def _cross_entropy(outputs: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="sum")


def _cross_entropy_each(outputs: Tensor, target: Tensor) -> Tensor:
    """The mean over each window's own bytes; padding is 0 in the sum and is not in the count."""
    losses = functional.cross_entropy(outputs.flatten(0, 1), target.flatten(), ignore_index=_NOTHING, reduction="none")
    return losses.view_as(target).sum(dim=1) / (target != _NOTHING).sum(dim=1)
