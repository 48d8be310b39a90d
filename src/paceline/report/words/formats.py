"""Number formats in words: what flowed through a model, and updates that fp16 left out."""

from __future__ import annotations

from paceline.records.applied import NumberFormats


def left_out_in_words(num: int, of: int) -> str:
    """
    >>> left_out_in_words(3, 900)
    '3 of 900 updates were left out, because their gradients were not finite in fp16'
    """
    return f"{num} of {of} updates were left out, because their gradients were not finite in fp16"


def flowed(formats: NumberFormats) -> str:
    """
    >>> flowed(NumberFormats(("float32",), ("float16", "float32"), False, None))
    'weights float32, layers gave float16 and float32'
    """
    text = f"weights {' and '.join(formats.parameters)}"
    if formats.compute:
        text += f", layers gave {' and '.join(formats.compute)}"
    if formats.tf32:
        text += ", products rounded to TF32"
    if formats.fp8:
        text += f", {formats.fp8[0]} of {formats.fp8[1]} linear layers in fp8"
    return text
