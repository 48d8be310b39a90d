"""Random changes of images: crop, flip, rotation, colours. What a sample becomes depends on its pixels and its key alone.

It draws nothing: every number is a hash of the key. And it uses no operation whose last bits depend on how many samples
are in a batch (no matrix product, no sum over an axis, no sine, whose vector and scalar forms differ), so that one process
and eight train on the same pixels. It must not know any setting.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# splitmix64, as signed numbers: torch's int64 products wrap around, which is what the hash wants.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64), (31, 1))
_BITS = 24  # what float32 holds exactly
_NUM_DRAWS = 7  # flip, two shifts, rotation, brightness, contrast, saturation

SHIFT = 4  # pixels: a crop after padding by 4
DEGREES = 10.0
JITTER = 0.2  # of brightness, contrast and saturation
_GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue look


def stream(num: int, device: torch.device) -> Tensor:
    """The offsets of the first `num` numbers in a key's splitmix64 stream. It is a tensor made once, because Triton 3.6 (torch 2.11)
    takes counter x step in a graph for 32-bit arithmetic and fails."""
    return torch.arange(1, num + 1, device=device) * _STEP


def draws(keys: Tensor, begin: Tensor) -> Tensor:
    """[n, num] numbers in [0, 1), float32, from int64 keys [n] and `stream(num)`."""
    z = keys[:, None] + begin
    for shift, factor in _ROUNDS:
        # `>>` keeps the sign; the mask makes it the shift of an unsigned number.
        z = (z ^ ((z >> shift) & (2 ** (64 - shift) - 1))) * factor
    return (z & (2**_BITS - 1)).to(torch.float32) * 2.0**-_BITS


class _Fixed(NamedTuple):
    """What does not change from batch to batch, on the batch's device."""

    across: Tensor  # [1, H, W, 1]: the place of each pixel, -1 to 1 from edge to edge
    down: Tensor
    shift: Tensor  # [2]: one pixel in those units
    grey: Tensor  # [1, 3, 1, 1]
    black: Tensor
    white: Tensor
    begin: Tensor


class Augment:
    """For batches of normalised colour images; the border of a shifted or turned image is the data set's mean colour.

    Contrast is taken about that mean too, not about each image's own: a mean over an image is a sum whose order, and so
    whose last bit, may change with the batch.
    """

    def __init__(self, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        self.mean, self.deviation = mean, deviation
        self._fixed: dict[tuple[torch.device, torch.dtype, int, int], _Fixed] = {}

    def __call__(self, batch: tuple[Tensor, ...], keys: Tensor) -> tuple[Tensor, ...]:
        """The batch with other images; whatever follows the images (labels) stays as it is."""
        images = batch[0]
        # Half formats lose more than the jitter adds: computed in float32 and given back as it came.
        pixels = images.float() if images.dtype in (torch.float16, torch.bfloat16) else images
        fixed = self._constants(pixels)
        drawn = draws(keys, fixed.begin).to(pixels.dtype)
        pixels = self._coloured(pixels, fixed, drawn[:, 4:])
        pixels = self._moved(pixels, fixed, drawn[:, :4])
        return (pixels.to(images.dtype), *batch[1:])

    def _constants(self, pixels: Tensor) -> _Fixed:
        """Made once: a tensor from Python numbers is a copy to the device, which waits for it."""
        height, width = pixels.shape[-2:]
        name = (pixels.device, pixels.dtype, height, width)
        if name not in self._fixed:
            like = {"device": pixels.device, "dtype": pixels.dtype}

            def colour(values: tuple[float, ...]) -> Tensor:
                return torch.tensor(values, **like).view(1, 3, 1, 1)

            def places(num: int) -> Tensor:
                return (torch.arange(num, **like) * 2 + (1 - num)) / num

            pairs = list(zip(self.mean, self.deviation, strict=True))
            self._fixed[name] = _Fixed(
                across=places(width).view(1, 1, width, 1),
                down=places(height).view(1, height, 1, 1),
                shift=torch.tensor([2.0 / width, 2.0 / height], **like),
                grey=colour(_GREY),
                black=colour(tuple((0.0 - mean) / deviation for mean, deviation in pairs)),
                white=colour(tuple((1.0 - mean) / deviation for mean, deviation in pairs)),
                begin=stream(_NUM_DRAWS, pixels.device),
            )
        return self._fixed[name]

    def _coloured(self, pixels: Tensor, fixed: _Fixed, drawn: Tensor) -> Tensor:
        """Brightness is a factor of the light, so it moves away from black; all three at once, then cut at black and white."""
        bright, contrast, colourful = (1.0 - JITTER + 2.0 * JITTER * drawn).view(-1, 3, 1, 1, 1).unbind(1)
        red, green, blue = (pixels * fixed.grey).unbind(1)
        grey = (red + green + blue)[:, None]
        gain = bright * contrast
        kept = gain * colourful
        changed = pixels * kept + grey * (gain - kept) + fixed.black * (1.0 - bright)
        return changed.clamp(fixed.black, fixed.white)

    def _moved(self, pixels: Tensor, fixed: _Fixed, drawn: Tensor) -> Tensor:
        """Flip, shift and rotation as one map of places, so that pixels are interpolated once.

        The angle is given by the tangent of its half, from which sine and cosine follow by plain arithmetic."""
        tangent = (2.0 * drawn[:, 3] - 1.0) * math.tan(math.radians(DEGREES) / 2)
        square = tangent * tangent
        cosine, sine = (1.0 - square) / (1.0 + square), (2.0 * tangent) / (1.0 + square)
        side = 1.0 - 2.0 * (drawn[:, 0] * 2.0).floor()  # 1 or -1
        shifts = (drawn[:, 1:3] * (2 * SHIFT + 1)).floor() - SHIFT

        def pair(x: Tensor, y: Tensor) -> Tensor:
            return torch.stack((x, y), dim=1).view(-1, 1, 1, 2)

        grid = (
            pair(cosine * side, sine * side) * fixed.across
            + pair(-sine, cosine) * fixed.down
            + (shifts * fixed.shift).view(-1, 1, 1, 2)
        )
        return functional.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
