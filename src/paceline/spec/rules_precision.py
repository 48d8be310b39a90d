"""What cannot be computed in a number format. A part of the table in `rules.py`, as flat as that."""

from __future__ import annotations

from paceline.spec.rule import Rule

PRECISION: tuple[Rule, ...] = (
    Rule(
        "accelerate-drops-fp16",
        lambda spec, known: spec.wrap == "accelerate" and spec.precision == "fp16" and spec.device == "cpu",
        "wrap=accelerate precision=fp16 on a CPU: accelerate drops fp16 there without a word and trains in fp32; use "
        "precision=bf16 or fp32, or a GPU",
    ),
)
