"""Small products as sums: torch's own numbers, a bias or none; what is large, half or scaled stays torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.worker.transform.crossovers import MOST_SUMMED
from paceline.worker.transform.small_products import SMALL_PRODUCTS
from paceline.worker.transform.tracing import Traced, trace

pytestmark = pytest.mark.usefixtures("compiled_elsewhere")
_aten = torch.ops.aten


def linear(rows: int, width: int, columns: int, dtype: torch.dtype = torch.float64, *, bias: bool = True) -> Any:
    """Outputs and all gradients of a layer, by its trace and by torch."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(width, columns, bias=bias, dtype=dtype)
    x = torch.randn(rows, width, dtype=dtype)
    given = {"x": x, **{name: weight.detach() for name, weight in layer.named_parameters()}}
    found = {
        "outputs": x.new_zeros(rows, columns),
        **{name: torch.zeros_like(tensor) for name, tensor in given.items()},
    }

    def compute(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        with torch.enable_grad():
            leaves = {name: tensor.detach().requires_grad_() for name, tensor in given.items()}
            own = {name: leaf for name, leaf in leaves.items() if name != "x"}
            outputs = torch.func.functional_call(layer, own, (leaves["x"],))
            gradients = torch.autograd.grad(outputs.sin().sum(), list(leaves.values()))
        return {"outputs": outputs.detach(), **dict(zip(leaves, gradients, strict=True))}

    def body(state: dict[str, Any]) -> None:
        for name, value in compute(state["given"]).items():
            state["found"][name].copy_(value)

    traced = trace(body, {"given": given, "found": found}, SMALL_PRODUCTS)
    traced.graph(*traced.inputs)
    return traced, found, compute(given)


def num(traced: Traced, *targets: Any) -> int:
    return sum(node.target in targets for node in traced.graph.graph.nodes)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(32, 512, 32), (1, 3, 2), (16, 64, 1)])
def test_small_ones_are_sums_of_the_same_numbers(shape: tuple[int, int, int], bias: bool) -> None:
    traced, found, want = linear(*shape, bias=bias)
    assert num(traced, _aten.mm.default, _aten.addmm.default) == 0
    for name, value in want.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((128, 512, 256), torch.float64), ((32, 64, 32), torch.bfloat16), ((32, 64, 32), torch.float16)],
)
def test_large_and_half_ones_stay_torchs(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    assert dtype != torch.float64 or shape[0] * shape[1] * shape[2] > MOST_SUMMED
    traced, _, _ = linear(*shape, dtype)
    assert num(traced, _aten.addmm.default) == 1
    assert num(traced, _aten.mm.default) == 2


def test_a_scaled_one_stays_torchs() -> None:
    bias, a, b, out = torch.ones(3), torch.ones(2, 4), torch.ones(4, 3), torch.zeros(2, 3)

    def body(state: dict[str, torch.Tensor]) -> None:
        state["out"].copy_(torch.addmm(state["bias"], state["a"], state["b"], beta=2, alpha=0.5))

    traced = trace(body, {"bias": bias, "a": a, "b": b, "out": out}, SMALL_PRODUCTS)
    traced.graph(*traced.inputs)
    assert num(traced, _aten.addmm.default) == 1
    assert out.eq(4).all()
