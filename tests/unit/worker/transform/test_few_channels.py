"""The weight gradient of few channels by matrix products: torch's own gradient, whatever the convolution; with many it stays torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.worker.transform.few_channels import FEW_CHANNELS
from paceline.worker.transform.tracing import Traced, trace

pytestmark = pytest.mark.usefixtures("compiled_elsewhere")


def traced(x: torch.Tensor, conv: torch.nn.Module) -> tuple[Traced, dict[str, Any]]:
    """All three gradients of a convolution, written where the graph's caller looks for them."""
    weights = dict(conv.named_parameters())
    state = {
        "x": x,
        "weights": {name: weight.detach().clone() for name, weight in weights.items()},
        "found": {name: torch.zeros_like(tensor) for name, tensor in {"x": x, **weights}.items()},
    }

    def body(state: dict[str, Any]) -> None:
        with torch.enable_grad():
            leaves = {"x": state["x"].detach().requires_grad_()}
            leaves |= {name: weight.detach().requires_grad_() for name, weight in state["weights"].items()}
            own = {name: leaf for name, leaf in leaves.items() if name != "x"}
            outputs = torch.func.functional_call(conv, own, (leaves["x"],))
            gradients = torch.autograd.grad(outputs.sin().sum(), list(leaves.values()))
        for name, gradient in zip(leaves, gradients, strict=True):
            state["found"][name].copy_(gradient)

    return trace(body, state, FEW_CHANNELS), state["found"]


def products(graph: Traced) -> int:
    return sum(node.target is torch.ops.aten.bmm.default for node in graph.graph.graph.nodes)


@pytest.mark.parametrize(
    "made",
    [
        {"in_channels": 1, "padding": 1},
        {"in_channels": 4, "padding": 1},
        {"in_channels": 3, "padding": (0, 2), "stride": 2},
        {"in_channels": 2, "padding": 2, "stride": (2, 1), "dilation": (1, 2), "bias": False},
        {"in_channels": 1, "kernel_size": (5, 2)},
    ],
)
def test_the_gradients_are_torchs(made: dict[str, Any]) -> None:
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(**{"out_channels": 6, "kernel_size": 3, **made}).double()
    x = torch.randn(5, made["in_channels"], 11, 9, dtype=torch.float64, requires_grad=True)
    graph, found = traced(x.detach(), conv)
    graph.graph(*graph.inputs)
    conv(x).sin().sum().backward()
    want = {"x": x.grad, **{name: weight.grad for name, weight in conv.named_parameters()}}
    assert products(graph) == 1
    for name, gradient in want.items():
        assert gradient is not None
        torch.testing.assert_close(found[name], gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "conv",
    [
        torch.nn.Conv2d(11, 4, 3, padding=1),
        torch.nn.Conv2d(4, 4, 3, groups=2),
        torch.nn.ConvTranspose2d(1, 4, 3),
        torch.nn.Conv2d(2, 4, 7),
        torch.nn.Conv1d(1, 4, 3),
    ],
)
def test_others_stay_torchs(conv: torch.nn.Conv2d | torch.nn.Conv1d | torch.nn.ConvTranspose2d) -> None:
    places = (12,) if isinstance(conv, torch.nn.Conv1d) else (12, 12)
    graph, _ = traced(torch.randn(2, conv.in_channels, *places), conv)
    assert products(graph) == 0


def test_copies_that_would_take_much_memory_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    x, conv = torch.randn(2, 1, 12, 12), torch.nn.Conv2d(1, 4, 3, padding=1)
    copies = 2 * 9 * 144 * 4
    monkeypatch.setattr("paceline.worker.transform.few_channels.MOST_BYTES", copies)
    assert products(traced(x, conv)[0]) == 1
    monkeypatch.setattr("paceline.worker.transform.few_channels.MOST_BYTES", copies - 1)
    assert products(traced(x, conv)[0]) == 0
