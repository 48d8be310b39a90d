"""What the ranks read back after everything was applied, typed as far as the parent reads it; the rest is kept as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.records.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates(Section):
    """Of a loss scaler: how many updates there were, and how many of them were left out."""

    steps: int | None = None
    skipped_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8(Section):
    linear_layers: int | None = None
    ran: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied(Section):
    dtypes: dict[str, tuple[str, ...]] | None = field(default_factory=dict[str, tuple[str, ...]])
    tf32: dict[str, bool] | None = None
    fp8: Fp8 | None = None
    scaler: Updates | None = None
    accelerate: Updates | None = None


@dataclass(frozen=True, slots=True)
class NumberFormats:
    """What flowed through a model: dtypes of its weights and of what its layers gave, as torch names them."""

    parameters: tuple[str, ...]
    compute: tuple[str, ...]
    tf32: bool
    fp8: tuple[int, int] | None  # linear layers in fp8, of so many


def left_out(applied: Applied | None) -> tuple[int, int]:
    """(updates that were left out because a gradient was not finite, all of them); (0, 0) where nothing is ever left out."""
    updates = applied and (applied.scaler or applied.accelerate)
    return (updates.skipped_steps or 0, updates.steps or 0) if updates else (0, 0)


def number_formats(applied: Applied | None) -> NumberFormats | None:
    """None where the run does not tell."""
    dtypes = (applied.dtypes if applied else None) or {}
    if applied is None or not dtypes.get("parameters"):
        return None
    fp8 = applied.fp8 and (applied.fp8.ran or 0, applied.fp8.linear_layers or 0)
    tf32 = any((applied.tf32 or {}).values())
    return NumberFormats(dtypes["parameters"], dtypes.get("compute", ()), tf32, fp8)
