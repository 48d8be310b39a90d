"""The weight gradient of a convolution with few input channels, as batched matrix products: for a graph that a GPU compiles.

cuDNN's kernels for it are made for many channels: on an H200, at batches of 512 images of one and four channels, half of a step of
mnist-convnet was spent in them. The same sums by matrix products took a third of that time (docs/graphs.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from paceline.worker.transform.crossovers import MOST_TAPS

_aten = torch.ops.aten
MOST_BYTES = (
    1 << 28
)  # of the inputs' copies, one for every tap: a step must not need much more memory than without a graph


def _backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Any, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    """In the place of torch's operator of the same arguments; the gradients of input and bias stay torch's own."""
    plane = weight.dim() == 4 and len(stride) == len(padding) == len(dilation) == 2 and groups == 1 and not transposed
    if not (wanted[1] and plane and _is_quicker(gradient, x, weight)):
        return NotImplemented
    inputs = biases = None
    if wanted[0]:
        inputs, _, _ = _aten.convolution_backward(
            gradient, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, [True, False, False]
        )  # fmt: skip
    if wanted[2]:
        biases = gradient.sum((0, 2, 3))
    return inputs, weight_gradient(gradient, x, weight, stride, padding, dilation), biases


def _is_quicker(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> bool:
    taps = weight[0].numel()
    return taps <= MOST_TAPS and gradient[:, 0].numel() * taps * x.element_size() <= MOST_BYTES


def weight_gradient(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:  # fmt: skip
    """For each tap of the kernel: the inputs it saw at every output position, times the gradient there, summed over
    positions and samples."""
    batch, (rows, columns), (down, right) = len(x), gradient.shape[2:], weight.shape[2:]
    wide = functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    tap = torch.arange(weight[0].numel(), device=x.device)[:, None]
    place = torch.arange(rows * columns, device=x.device)
    row = place // columns * stride[0] + tap // right % down * dilation[0]
    column = place % columns * stride[1] + tap % right * dilation[1]
    # by index, and at once in the form of a matrix: of a stack of slices torch's compiler makes a kernel for every tap, and of a
    # change of form another copy
    taps = wide[:, tap // (down * right), row, column]
    each = torch.bmm(gradient.reshape(batch, len(weight), -1), taps.transpose(1, 2))
    return each.sum(0).view(weight.shape)


FEW_CHANNELS: dict[Any, Any] = {_aten.convolution_backward.default: _backward}
