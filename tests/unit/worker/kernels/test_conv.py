"""Our convolution beside torch's: the same numbers and gradients for every size, order in memory, format and number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from paceline.base.errors import RunFailed
from paceline.worker.kernels.conv import conv_relu, operators, reference

# N, C, H, W, K: whole vectors and rests of them, one sample, odd sizes, more channels than registers, one pixel
SHAPES = [
    (32, 1, 28, 28, 4),
    (32, 4, 14, 14, 8),
    (1, 3, 5, 7, 5),
    (17, 2, 9, 6, 3),
    (33, 5, 8, 8, 10),
    (3, 1, 2, 3, 1),
    (70, 6, 4, 5, 7),
]
# The largest difference over the largest value. bf16: inputs are exact, sums are fp32, results are rounded once (2^-9 at most).
NEAR = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2**-8}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    operators()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, *, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
    num, channels, height, width, outs = shape
    generator = torch.Generator().manual_seed(1)
    x, weight, b = (
        torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
        for size in ((num, channels, height, width), (outs, channels, 3, 3), (outs,))
    )
    return x, weight, b if bias else None


def inner(x: Tensor) -> Tensor:
    """The same numbers with the batch innermost."""
    return x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)


def gradients(
    call: Callable[..., Tensor], arguments: tuple[Tensor | None, ...], laid: Callable[[Tensor], Tensor], **how: Any
) -> list[Tensor]:
    """The result and the gradients of everything, for a gradient of the result that is the same each time and exact in any format."""
    leaves = [None if value is None else value.detach().requires_grad_() for value in arguments]
    out = call(*leaves, **how)
    up = (
        torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        .to(torch.bfloat16)
        .to(out.dtype)
    )
    found = torch.autograd.grad(out, [leaf for leaf in leaves if leaf is not None], laid(up))
    return [out.detach(), *found]


def apart(ours: list[Tensor], torchs: list[Tensor]) -> float:
    assert [value.shape for value in ours] == [value.shape for value in torchs]
    pairs = [(a.double(), b.double()) for a, b in zip(ours, torchs, strict=True)]
    return max(((a - b).abs().max() / b.abs().max().clamp_min(1e-9)).item() for a, b in pairs)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("pool", [False, True])
def test_it_is_torchs_for_every_size_and_order(dtype: torch.dtype, pool: bool) -> None:
    for shape in SHAPES:
        arguments = drawn(shape, dtype)
        exact = tuple(None if value is None else value.double() for value in arguments)
        wanted = gradients(reference, exact, lambda up: up, pool=pool)
        for order_x, order_up, order_out in (
            (inner, inner, True),
            (torch.clone, inner, False),
            (inner, torch.clone, False),
        ):
            x = order_x(arguments[0])
            found = gradients(conv_relu, (x, *arguments[1:]), order_up, pool=pool, inner=order_out)
            assert apart(found, wanted) < NEAR[dtype], (shape, order_x, order_up)
            assert found[1].stride() == x.stride(), "a gradient lies as its input does"
            assert all(value.dtype == dtype for value in found)


@pytest.mark.parametrize("pool", [False, True])
def test_the_number_of_threads_changes_no_bit(pool: bool) -> None:
    arguments = drawn((150, 3, 10, 9, 5), torch.float32)
    alone = gradients(conv_relu, arguments, torch.clone, pool=pool)
    torch.set_num_threads(2)
    assert all(
        torch.equal(a, b) for a, b in zip(alone, gradients(conv_relu, arguments, torch.clone, pool=pool), strict=True)
    )


@pytest.mark.parametrize("pool", [False, True])
def test_the_gradient_is_the_derivative(pool: bool) -> None:
    x, weight, bias = (value.requires_grad_() for value in drawn((3, 2, 5, 4, 3), torch.float64) if value is not None)
    assert torch.autograd.gradcheck(lambda *values: conv_relu(*values, pool=pool), (x, weight, bias), atol=1e-7)


def test_without_a_bias_and_with_strange_strides() -> None:
    x, weight, _ = drawn((18, 3, 8, 7, 4), torch.float32, bias=False)
    for laid in (
        x[:, :, ::1, :].contiguous(memory_format=torch.channels_last),
        x.transpose(2, 3).contiguous().transpose(2, 3),
        x[::2],
    ):
        wanted = gradients(reference, (laid, weight, None), torch.clone, pool=True)
        assert apart(gradients(conv_relu, (laid, weight, None), torch.clone, pool=True), wanted) < NEAR[torch.float32]
    leaf = x.requires_grad_()
    conv_relu(leaf, weight, None, pool=True).sum().backward()  # a gradient without memory of its own
    assert leaf.grad is not None and leaf.grad.abs().sum() > 0


def test_ties_zeros_and_nan_go_where_torch_puts_them() -> None:
    """Of equal values the first has the gradient; where ReLU gives zero nobody has; a NaN stays, and is passed on."""
    weight = torch.zeros(1, 1, 3, 3)
    weight[0, 0, 1, 1] = 1.0
    x = torch.zeros(20, 1, 4, 4)
    x[:, :, :2, :2] = 2.0
    x[:, :, 2:, :2] = -1.0
    x[0, 0, 2, 3] = x[0, 0, 0, 1] = float("nan")
    for pool in (False, True):
        ours, torchs = (
            gradients(call, (x, weight, torch.zeros(1)), torch.clone, pool=pool) for call in (conv_relu, reference)
        )
        torch.testing.assert_close(ours[0], torchs[0], equal_nan=True)
        torch.testing.assert_close(ours[1][1:], torchs[1][1:])


def test_no_samples_give_zeros() -> None:
    _, weight, bias = drawn((1, 2, 4, 4, 3), torch.float32)
    out, *found = gradients(conv_relu, (torch.empty(0, 2, 4, 4), weight, bias), torch.clone, pool=True)
    assert out.shape == (0, 3, 2, 2) and found[0].shape == (0, 2, 4, 4)
    assert not found[1].any() and not found[2].any()


def test_a_first_layer_computes_no_gradient_for_its_images() -> None:
    x, weight, bias = drawn((4, 1, 6, 6, 2), torch.float32)
    out = conv_relu(x, weight.requires_grad_(), bias, pool=True)
    assert out.requires_grad
    assert len(torch.autograd.grad(out.sum(), [weight])) == 1
    with torch.no_grad():
        assert torch.equal(conv_relu(x, weight, bias, pool=True), out)


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (torch.zeros(2, 1, 4, 4, 4), torch.zeros(1, 1, 3, 3)),
        (torch.zeros(2, 1, 4, 4), torch.zeros(1, 1, 5, 5)),
        (torch.zeros(2, 3, 4, 4), torch.zeros(1, 1, 3, 3)),
        (torch.zeros(2, 1, 4, 4), torch.zeros(1, 1, 3, 3, dtype=torch.float64)),
        (torch.zeros(2, 1, 4, 4, dtype=torch.float16), torch.zeros(1, 1, 3, 3, dtype=torch.float16)),
        (torch.zeros(2, 1, 1, 4), torch.zeros(1, 1, 3, 3)),
    ],
)
def test_what_it_does_not_know_never_reaches_it(x: Tensor, weight: Tensor) -> None:
    with pytest.raises(RunFailed, match="our convolution takes"):
        conv_relu(x, weight, None, pool=True)


def test_a_traced_step_holds_it_as_one_node() -> None:
    """As the graph of a whole step is made: on tensors without data, the gradient taken inside."""
    layer = torch.nn.Conv2d(2, 3, 3, padding=1)
    x = torch.randn(5, 2, 6, 6)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = layer.weight, layer.bias

        def forward(self, x: Tensor) -> Tensor:
            return conv_relu(x, self.weight, self.bias, pool=True, inner=True)

    module = Layer()

    def step(weight: Tensor, bias: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        leaves = {"weight": weight.detach().requires_grad_(), "bias": bias.detach().requires_grad_()}
        loss = functional_call(module, leaves, (x,)).square().sum()
        return loss.detach(), *torch.autograd.grad(loss, list(leaves.values()))

    arguments = (layer.weight.detach(), torch.zeros(3), x)
    graph = make_fx(step, tracing_mode="fake")(*arguments)
    names = [str(node.target) for node in graph.graph.nodes]
    assert "paceline.conv_relu.default" in names and "paceline.conv_relu_backward.default" in names
    assert not [name for name in names if "convolution" in name or "relu." in name.replace("conv_relu", "")]
    assert all(torch.equal(a, b) for a, b in zip(graph(*arguments), step(*arguments), strict=True))


def test_the_form_without_data_has_the_sizes_and_strides_of_the_real_one() -> None:
    for shape in SHAPES:
        x, weight, bias = drawn(shape, torch.float32)
        for laid in (x, inner(x)):
            torch.library.opcheck(
                torch.ops.paceline.conv_relu.default, (laid, weight, bias, False, True),
                test_utils=("test_schema", "test_faketensor"),
            )  # fmt: skip
            out, index = torch.ops.paceline.conv_relu.default(laid, weight, bias, False, True)
            torch.library.opcheck(
                torch.ops.paceline.conv_relu_backward.default, (out, laid, weight, index, False, True, True),
                test_utils=("test_schema", "test_faketensor"),
            )  # fmt: skip
