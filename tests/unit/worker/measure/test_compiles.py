"""torch's compiler, watched: seconds in a part of their own, breaks and recompilations counted, and nothing left behind.

With the backend that compiles nothing: what is watched is the same, and it takes no C++ compiler.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo
from torch._dynamo.callback import callback_handler
from torch._dynamo.exc import Unsupported

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.compiles import Compiles


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def plain(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).relu()


def branching(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def test_one_graph_is_compiled_once_and_timed_apart() -> None:
    watch = Stopwatch("forward")
    heard: list[tuple[str, str]] = []
    watch.on_switch = lambda before, after: heard.append((before, after))
    compiles, function = Compiles(watch), torch.compile(plain, backend="eager")
    with compiles:
        function(torch.ones(4))
    once = watch.parts["compile"]
    with compiles:
        function(torch.ones(4))
    found = compiles.counts()
    assert (found["graphs"], found["breaks"], found["recompiles"]) == (1, 0, 0)
    assert once > 0 and watch.parts["compile"] == once, "the second call compiles nothing"
    assert watch.part == "forward" and watch.on_switch is not None and not heard, "the forward pass did not end"


def test_a_branch_on_a_number_breaks_the_graph_and_names_its_line() -> None:
    compiles, function = Compiles(Stopwatch("forward")), torch.compile(branching, backend="eager")
    with compiles:
        function(torch.ones(4))
    found = compiles.counts()
    line = branching.__code__.co_firstlineno + 2
    assert found["breaks"] == 1 and found["recompiles"] == 0
    assert found["break_reasons"] == [f"Data-dependent branching (test_compiles.py, line {line})"]


def test_new_shapes_are_recompilations_with_their_reason() -> None:
    compiles, function = Compiles(Stopwatch("forward")), torch.compile(plain, backend="eager", dynamic=False)
    with compiles:
        for size in (4, 5, 6, 4):
            function(torch.ones(size))
    found = compiles.counts()
    assert (found["graphs"], found["recompiles"]) == (3, 2)
    assert found["recompile_reasons"][0] == "tensor 'x' size mismatch at index 0. expected 4, actual 5"


def test_two_that_watch_count_their_own() -> None:
    first = Compiles(Stopwatch("forward"))
    with first:
        torch.compile(branching, backend="eager")(torch.ones(4))
    second = Compiles(Stopwatch("forward"))
    with second:
        torch.compile(plain, backend="eager")(torch.ones(4))
    assert second.counts()["graphs"] == 1 and second.counts()["breaks"] == 0


def test_nothing_is_left_behind_even_by_a_failure() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    watch = Stopwatch("forward")
    compiles = Compiles(watch)
    with pytest.raises(Unsupported), compiles:
        torch.compile(fails, backend="eager", fullgraph=True)(torch.ones(4))
    assert callback_handler.start_callbacks == callback_handler.end_callbacks == []
    assert watch.part == "forward"


def test_a_graph_made_by_hand_may_call_the_compiler() -> None:
    watch = Stopwatch("step")
    compiles, function = Compiles(watch), torch.compile(plain, backend="eager")
    with compiles, compiles.making(graphs=1):
        function(torch.ones(4))
        assert watch.part == "compile", "the inner one does not end the outer one"
    assert watch.part == "step"
    assert compiles.counts()["graphs"] == 2
    assert compiles.num == 1, "one disturbance"
