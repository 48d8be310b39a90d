"""A trace made by hand: every second of it is booked once, on the right module, operator and frame of the tree."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.worker.measure.accounts import ENGINE, Accounts, Frame


def frame(name: str, start_s: float, end_s: float, *children: Frame, **more: Any) -> Frame:
    return Frame(name, start_s, end_s - start_s, list(children), **more)


def module(name: str, start_s: float, end_s: float, *children: Frame) -> Frame:
    return frame(f"module::{name}|Kind", start_s, end_s, *children)


def batch(**engine: Any) -> list[Frame]:
    """0-10 forward: a model whose block calls a layer twice; 10-11 the loss; 11-20 the backward pass."""
    first = module("block.layer", 2, 4, frame("mul", 2, 3, sequence=7, own_bytes=100))
    second = module("block.layer", 4, 6, frame("mul", 4, 6, frame("view", 4, 4.5), sequence=8, own_bytes=100))
    block = module("block", 1, 7, first, second, frame("add", 6, 7, sequence=9, own_bytes=10))
    forward = frame("phase::forward", 0, 10, module("(model)", 0.5, 9.5, block))
    loss = frame("phase::loss", 10, 11, frame("sum", 10, 11, sequence=10))
    backward = [
        frame(f"{ENGINE}SumBackward0", 11, 12, sequence=10, forward_thread=1, **engine),
        frame(
            f"{ENGINE}AddBackward0", 12, 14, frame("AddBackward0", 12, 13.5, own_bytes=8, **engine),
            sequence=9, forward_thread=1, own_bytes=-99, **engine,
        ),
        frame(f"{ENGINE}MulBackward0", 14, 17, sequence=8, forward_thread=1, own_device_s=0.25, **engine),
        frame(f"{ENGINE}MulBackward0", 17, 18, sequence=7, forward_thread=1, **engine),
        frame(f"{ENGINE}AccumulateGrad", 18, 19, **engine),
    ]  # fmt: skip
    if engine:
        return [forward, loss, frame("phase::backward", 11, 20), *backward]
    return [forward, loss, frame("phase::backward", 11, 20, *backward)]


@pytest.fixture(params=["on its thread", "on another"])
def booked(request: pytest.FixtureRequest) -> Accounts:
    """On a CPU the backward pass runs in the thread that asked for it; on a GPU in one of its own."""
    return Accounts(batch(**({"thread": 2} if request.param == "on another" else {})), name="training")


def test_modules_have_their_own_time_and_that_of_what_they_call(booked: Accounts) -> None:
    rows = {
        name: (a.calls, a.forward_s, a.own_forward_s, a.backward_s, a.own_backward_s)
        for name, a in booked.modules.items()
    }
    assert rows == {
        "(model)": (1, 9.0, 3.0, 6.0, 0.0),
        "block": (1, 6.0, 2.0, 6.0, 2.0),
        "block.layer": (2, 4.0, 4.0, 4.0, 4.0),
    }
    assert sum(account.own_forward_s for account in booked.modules.values()) == booked.in_modules_s == 9.0
    assert booked.phase_s == {"forward": 10, "loss": 1, "backward": 9}


def test_memory_is_what_operators_kept(booked: Accounts) -> None:
    assert {name: (a.bytes, a.backward_bytes) for name, a in booked.modules.items()} == {
        "(model)": (0, 0), "block": (10, 8), "block.layer": (200, 0),
    }, "what the engine frees is nobody's"  # fmt: skip
    assert booked.modules["block.layer"].device_s == booked.device_s == 0.25


def test_operators(booked: Accounts) -> None:
    mul, view = booked.operators["mul"], booked.operators["view"]
    assert (mul.calls, mul.self_s, mul.total_s, mul.forward_s, mul.self_bytes) == (2, 2.5, 3.0, 2.5, 200)
    assert (view.self_s, view.total_s) == (0.5, 0.5)
    assert booked.operators["sum"].forward_s == 0, "the loss is no part of the forward phase"
    assert booked.operators[f"{ENGINE}MulBackward0"].backward_s == 4.0


def test_the_tree_holds_all_time_once(booked: Accounts) -> None:
    tree = booked.tree.plain(at_least_s=0.0)
    assert tree["total_s"] == pytest.approx(20.0)
    phases = {child["name"]: child for child in tree["children"]}
    assert {name: child["total_s"] for name, child in phases.items()} == pytest.approx(
        {"forward": 10, "loss": 1, "backward": 9}
    )
    (model,) = [child for child in phases["backward"]["children"] if child["kind"] == "module"]
    (block,) = model["children"]
    assert (model["name"], block["name"], block["total_s"]) == ("(model)", "block", pytest.approx(6.0))
    add = next(child for child in block["children"] if child["name"] == "AddBackward0")
    assert (add["total_s"], add["children"]) == (2.0, []), "the engine's frame and the node's are one"


def test_small_frames_are_left_out() -> None:
    tree = Accounts(batch(), name="training").tree.plain(at_least_s=1.5)
    assert {child["name"] for child in tree["children"]} == {"forward", "backward"}
    assert tree["total_s"] == 20.0, "their time stays in what is around them"


def test_an_operator_inside_itself_is_counted_once() -> None:
    roots = [frame("phase::forward", 0, 4, frame("f", 0, 4, frame("g", 1, 3, frame("f", 1, 2))))]
    found = Accounts(roots, name="inference").operators["f"]
    assert (found.calls, found.self_s, found.total_s) == (1, 3.0, 4.0)


def test_a_module_inside_itself_is_counted_once() -> None:
    roots = [frame("phase::forward", 0, 4, module("a", 0, 4, module("b", 1, 3, module("a", 1, 2))))]
    found = Accounts(roots, name="inference").modules
    assert (found["a"].calls, found["a"].forward_s, found["a"].own_forward_s) == (2, 4.0, 3.0)


def test_the_last_operator_with_a_number_made_the_node() -> None:
    """An operator that makes no node carries the number of the next one, in another module or in the batch before."""
    early = frame("phase::data", 0, 1, frame("index", 0, 1, sequence=3))
    forward = frame(
        "phase::forward", 1, 4, module("a", 1, 2, frame("size", 1, 2, sequence=3)), module("b", 2, 4, frame("mm", 2, 4, sequence=3))
    )  # fmt: skip
    backward = frame("phase::backward", 4, 6, frame(f"{ENGINE}MmBackward0", 4, 6, sequence=3, forward_thread=1))
    found = Accounts([backward, forward, early], name="training").modules
    assert (found["a"].backward_s, found["b"].backward_s) == (0.0, 2.0)


def test_what_is_computed_again_in_the_backward_pass_is_backward_time() -> None:
    """Checkpointing: the module's range lies inside the engine's frame."""
    forward = frame("phase::forward", 0, 2, module("a", 0, 2, frame("mm", 0, 2, sequence=1)))
    again = module("a", 2, 3, frame("mm", 2, 3, sequence=2))
    backward = frame("phase::backward", 2, 6, frame(f"{ENGINE}Mm", 2, 6, again, sequence=1, forward_thread=1))
    found = Accounts([forward, backward], name="training").modules["a"]
    assert (found.calls, found.forward_s, found.backward_s) == (1, 2.0, 4.0)


def test_other_threads_and_what_lies_between_batches_are_not_the_model_s() -> None:
    roots = [frame("phase::forward", 0, 2), frame("aten::pin", 0, 1, thread=3), frame("aten::between", 3, 4)]
    found = Accounts(roots, name="inference")
    assert (found.tree.total_s, found.operators) == (2.0, {})
