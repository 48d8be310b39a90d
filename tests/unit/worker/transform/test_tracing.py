"""A traced function, compiled: it changes what it is given, called bare where nothing is shared and by torch's wrappers where it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from paceline.worker.transform import tracing

pytestmark = pytest.mark.usefixtures("compiled_elsewhere")


@pytest.fixture(autouse=True)
def in_one_thread() -> Iterator[None]:
    import torch._inductor.config as inductor

    with inductor.patch(compile_threads=1):
        yield
    os.environ.pop(
        "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", None
    )  # how torch hands an address to what it has compiled


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `_bare` found, each time."""
    found: list[Any] = []
    real = tracing._bare

    def listening(made: Any, inputs: list[torch.Tensor]) -> Any:
        found.append(real(made, inputs))
        return found[-1]

    monkeypatch.setattr(tracing, "_bare", listening)
    return found


def body(state: dict[str, torch.Tensor]) -> None:
    state["a"].add_(state["x"] * 2)
    state["b"].mul_(state["x"]).add_(state["a"].sum())


def eagerly(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        body(state)
    return {name: tensor.clone() for name, tensor in state.items()}


def test_with_this_torch_the_code_itself_is_called(bare: list[Any]) -> None:
    given = {"a": torch.arange(4.0), "b": torch.ones(4), "x": torch.full((4,), 3.0)}
    want = eagerly({name: tensor.clone() for name, tensor in given.items()})
    call = tracing.compile_traced(tracing.trace(body, given), backend="inductor")
    assert bare[0] is not None, "torch hides it elsewhere: steps on a CPU are some microseconds slower"
    call()
    for name, tensor in given.items():
        torch.testing.assert_close(tensor, want[name])


PARTS = {
    "the same tensor": (slice(0, 4), slice(0, 4), True),
    "two that overlap": (slice(0, 4), slice(3, 7), True),
    "one behind the other": (slice(0, 4), slice(4, 8), False),
}


@pytest.mark.parametrize("which", PARTS)
def test_what_is_changed_must_not_lie_in_another_s_memory(which: str) -> None:
    first, second, shared = PARTS[which]
    both = torch.arange(8.0)
    traced = tracing.trace(body, {"a": both[first], "b": both[second], "x": torch.ones(4)})
    assert tracing.written_twice(traced) is shared


def test_a_view_that_is_found_elsewhere_counts_and_what_is_only_read_does_not() -> None:
    weight, table = torch.ones(3, 3), torch.ones(5, 2)
    turned = weight.t()
    state = {"weight": weight, "x": table[:, :1], "y": table[:, 1:]}

    def read(state: dict[str, torch.Tensor]) -> None:
        state["weight"].view(-1)[:1].add_((state["x"] * state["y"]).sum())

    def elsewhere(state: dict[str, torch.Tensor]) -> None:
        state["weight"].add_(turned)

    assert not tracing.written_twice(tracing.trace(read, state))
    assert tracing.written_twice(tracing.trace(elsewhere, state))


def test_parts_of_one_memory_go_through_torchs_wrappers(bare: list[Any]) -> None:
    def given() -> dict[str, torch.Tensor]:
        both = torch.arange(8.0)
        return {"a": both[:4], "b": both[4:], "x": torch.full((4,), 3.0)}

    want, mine = eagerly(given()), given()
    call = tracing.compile_traced(tracing.trace(body, mine), backend="inductor")
    assert bare == [None]
    call()
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, want[name])
