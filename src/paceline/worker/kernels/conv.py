"""Convolution 3x3 + bias + ReLU (+ max pooling 2x2) as one operator on a CPU, forward and backward; `conv.cpp` computes it.

With `inner` a result has the usual shape [N, C, H, W], but the batch is the innermost dimension in memory. Another of
these layers takes it as it is; torch's own products are slow on such a tensor. Inputs and gradients are accepted in
both layouts. The operators are registered with torch (`torch.ops.paceline`) and have fake implementations, so tracers
and compilers see one node instead of three.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from paceline.base.errors import RunFailed
from paceline.worker.kernels.build import library

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
_VECTOR = {torch.float32: 16, torch.float64: 8, torch.bfloat16: 16}  # samples; as conv.cpp computes, bf16 in fp32
_ASKED = struct.Struct("=20q")  # `Asked` in conv.cpp
_SCHEMAS = (
    "conv_relu(Tensor x, Tensor weight, Tensor? bias, bool pool, bool inner) -> (Tensor, Tensor)",
    "conv_relu_backward(Tensor grad, Tensor x, Tensor weight, Tensor index, bool pool, bool input, bool bias) -> (Tensor, Tensor, Tensor)",
)


def conv_relu(x: Tensor, weight: Tensor, bias: Tensor | None, *, pool: bool, inner: bool = False) -> Tensor:
    """Differentiable once. `operators()` must have been called."""
    return _ConvRelu.apply(x, weight, bias, pool, inner)


def reference(x: Tensor, weight: Tensor, bias: Tensor | None, *, pool: bool) -> Tensor:
    """The same by torch's own operators: what the kernel is compared with."""
    out = torch.relu(torch.nn.functional.conv2d(x, weight, bias, padding=1))
    return torch.nn.functional.max_pool2d(out, 2) if pool else out


@functools.cache
def operators() -> torch.library.Library:
    """Compiles the kernel and registers its operators with torch, once a process. They live as long as the result is
    held."""
    kernel = _Kernel()
    known = torch.library.Library("paceline", "FRAGMENT")
    for schema in _SCHEMAS:
        known.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    known.impl("conv_relu", kernel.forward, "CPU")
    known.impl("conv_relu_backward", kernel.backward, "CPU")
    torch.library.register_fake("paceline::conv_relu", _like_forward, lib=known)
    torch.library.register_fake("paceline::conv_relu_backward", _like_backward, lib=known)
    return known


class _ConvRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, pool: bool, inner: bool) -> Tensor:
        out, index = torch.ops.paceline.conv_relu.default(x, weight, bias, pool, inner)
        ctx.save_for_backward(x, weight, index)
        ctx.pool, ctx.bias = pool, bias is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, index = ctx.saved_tensors
        wanted: bool = ctx.needs_input_grad[0]
        by_input, by_weight, by_bias = torch.ops.paceline.conv_relu_backward.default(
            grad, x, weight, index, ctx.pool, wanted, ctx.bias
        )
        return by_input if wanted else None, by_weight, by_bias if ctx.bias else None, None, None


# What follows runs four times a step of a small model, so its lines are few: each costs as much as some hundred products.


class _Kernel:
    """`conv.cpp`, compiled. All arguments of a call are in one struct (`_ASKED`): converting seventeen arguments would
    take ctypes longer than a small layer takes."""

    def __init__(self) -> None:
        compiled = library("conv")
        self._forward, self._backward = compiled.conv_forward, compiled.conv_backward
        for function in (self._forward, self._backward):
            function.argtypes, function.restype = (ctypes.c_char_p,), ctypes.c_int

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, pool: bool, inner: bool) -> tuple[Tensor, Tensor]:
        out, index = _like_forward(x, weight, bias, pool, inner)
        x, x_inner = _laid(x)
        num, channels, height, width = x.shape
        weight, bias = weight.contiguous(), None if bias is None else bias.contiguous()
        done = self._forward(
            _ASKED.pack(
                TYPES[x.dtype], num, channels, height, width, weight.shape[0], pool, torch.get_num_threads(),
                x.data_ptr(), x_inner, weight.data_ptr(), 0 if bias is None else bias.data_ptr(), out.data_ptr(), inner,
                0, 0, 0, 0, 0, index.data_ptr(),
            )
        )  # fmt: skip
        if not done:
            raise MemoryError("our convolution cannot allocate memory for its blocks of samples")
        return out, index

    def backward(
        self, grad: Tensor, x: Tensor, weight: Tensor, index: Tensor, pool: bool, input: bool, bias: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, x_inner = _laid(x)
        grad, grad_inner = _laid(grad)
        weight = weight.contiguous()
        num, channels, height, width = x.shape
        by_input, by_weight, by_bias = _like_backward(grad, x, weight, index, pool, input, bias)
        done = self._backward(
            _ASKED.pack(
                TYPES[x.dtype], num, channels, height, width, weight.shape[0], pool, torch.get_num_threads(),
                x.data_ptr(), x_inner, weight.data_ptr(), 0, 0, 0, grad.data_ptr(), grad_inner, by_input.data_ptr() if input else 0,
                by_weight.data_ptr(), by_bias.data_ptr() if bias else 0, index.data_ptr(),
            )
        )  # fmt: skip
        if not done:
            raise MemoryError("our convolution cannot allocate memory for its blocks of samples")
        return by_input, by_weight, by_bias


def _like_forward(x: Tensor, weight: Tensor, bias: Tensor | None, pool: bool, inner: bool) -> tuple[Tensor, Tensor]:
    """The fake implementation: sizes and layout of the results. The kernel reads memory by these sizes, so they are
    checked here."""
    if x.dim() != 4 or weight.dim() != 4 or weight.dtype != x.dtype or x.dtype not in TYPES:
        _refuse(x, weight)
    (num, channels, height, width), (outs, ins, high, wide) = x.shape, weight.shape
    if pool:
        height, width = height // 2, width // 2
    if ins != channels or high != 3 or wide != 3 or not height or not width:
        _refuse(x, weight)
    if bias is not None and (bias.shape != (outs,) or bias.dtype != x.dtype):
        _refuse(x, weight)
    vector = _VECTOR[x.dtype]
    padded = (num + vector - 1) // vector * vector
    return (
        _new(x, num, outs, height, width, inner),
        torch.empty_strided(
            (outs, height, width, padded),
            (height * width * padded, width * padded, padded, 1),
            dtype=torch.uint8,
            device=x.device,
        ),
    )


def _like_backward(
    grad: Tensor, x: Tensor, weight: Tensor, index: Tensor, pool: bool, input: bool, bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The fake implementation: the input's gradient has the layout of the input."""
    sizes = (x.shape[0], weight.shape[0], *((size // 2 if pool else size) for size in x.shape[2:]))
    if grad.shape != sizes or grad.dtype != x.dtype or weight.dtype != x.dtype:
        _refuse(grad, weight)
    return (
        _new(x, *x.shape, inner=_laid(x)[1]) if input else x.new_empty(0),
        torch.empty_strided(weight.shape, (weight.shape[1] * 9, 9, 3, 1), dtype=x.dtype, device=x.device),
        x.new_empty(weight.shape[0] if bias else 0),
    )


def _new(like: Tensor, num: int, channels: int, height: int, width: int, inner: bool) -> Tensor:
    area = height * width
    strides = (1, area * num, width * num, num) if inner else (channels * area, area, width, 1)
    return torch.empty_strided((num, channels, height, width), strides, dtype=like.dtype, device=like.device)


def _laid(x: Tensor) -> tuple[Tensor, bool]:
    """The tensor as it is where the kernel knows its layout, otherwise a copy; and whether the batch is innermost."""
    if x.is_contiguous():
        return x, False
    num, _, height, width = x.shape
    if x.stride() == (1, height * width * num, width * num, num):
        return x, True
    return x.contiguous(), False


def _refuse(x: Tensor, weight: Tensor) -> NoReturn:
    raise RunFailed(
        "our convolution takes [N, C, H, W] of fp32, fp64 or bf16, weights [K, C, 3, 3] of the same, and images no smaller than the "
        f"pooling; got {[*x.shape]} of {x.dtype} and {[*weight.shape]} of {weight.dtype}: use kernel=torch",
        kind="mismatch",
    )
