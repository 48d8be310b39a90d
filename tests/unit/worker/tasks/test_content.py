"""Digests of samples: the same for the same content, others for anything that a model could tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from paceline.worker.tasks.content import UNKNOWN, as_bytes, digest, parts_of, row_digests
from paceline.worker.tasks.targets import inputs_of


class Picture:
    size = (2, 1)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def tobytes(self) -> bytes:
        return self.raw


OTHERS: list[Any] = [
    torch.zeros(4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32), torch.zeros(8, dtype=torch.bfloat16), np.zeros(3), np.float32(0),
    0, 0.0, "0", "", None, True, b"0", Picture(b"01"), Picture(b"10"), {"a": 1}, {"b": 1}, (1, "2"), ("1", 2), (torch.zeros(0), 1),
]  # fmt: skip


def test_what_differs_has_another_digest() -> None:
    assert len({digest(value) for value in OTHERS}) == len(OTHERS)


@pytest.mark.parametrize(
    "value", [torch.tensor([1.5, float("nan")]), np.array(["a", "bc"]), {"a": [1, 2]}, Picture(b"x")]
)
def test_what_is_the_same_has_the_same(value: Any) -> None:
    copy = value.clone() if isinstance(value, torch.Tensor) else value
    assert digest(copy) == digest(value) and UNKNOWN not in list(parts_of(value))


def test_a_view_is_known_by_its_numbers() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    assert digest(whole[:, 1]) == digest(whole[:, 1].clone()) != digest(whole[:, 2])


@pytest.mark.parametrize("value", [object(), np.array([object()]), torch.eye(2).to_sparse()])
def test_what_has_no_bytes_is_unknown(value: Any) -> None:
    assert next(parts_of((value, 1))) == UNKNOWN


def test_a_target_is_no_input() -> None:
    assert inputs_of((1, 2, 3)) == (1, 2) and inputs_of([7]) == [7] and inputs_of(5) == 5
    assert inputs_of({"x": 1, "Label": 2}) == {"x": 1} and inputs_of({"y": 1}) == {"y": 1}


def test_rows_over_several_tensors() -> None:
    first = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [3.0, 4.0]])
    second = torch.tensor([7, 7, 8, 7])
    found = row_digests((first, second), np.arange(4))
    assert found[0] == found[1] and len({*found.tolist()}) == 3
    assert row_digests((first, second), np.array([3, 0])).tolist() == [found[3], found[0]]
    assert len(row_digests((first,), np.zeros(0, dtype=np.int64))) == 0


@pytest.mark.parametrize(
    "tensor",
    [
        torch.from_numpy(np.ascontiguousarray(np.arange(3.0)[:, None][1])),
        torch.arange(3.0).as_strided((3, 1), (1, 0)),
        torch.tensor(2.0),
        torch.zeros(0, 1),
        torch.arange(4.0).view(2, 2).T,
    ],
)
def test_a_dimension_of_one_may_have_any_stride(tensor: torch.Tensor) -> None:
    """As NumPy's x[:, None] has, which torch says is contiguous and gives no view of."""
    assert bytes(as_bytes(tensor).numpy()) == tensor.numpy().tobytes()
