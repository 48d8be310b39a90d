"""What is said of number formats: to the user of one run, and in the notes of a study."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.commands.report import findings
from paceline.records.applied import left_out, number_formats
from paceline.records.record import Record
from paceline.report.words.formats import flowed
from paceline.report.words.run import facts
from unit.analysis.made import cell, run, study

HALF = {"dtypes": {"parameters": ["float32"], "compute": ["float16", "float32"]}}
SCALER = {"scale": 4096.0, "skipped_steps": 4, "steps": 900}


def record(**applied: Any) -> Record:
    return run(1.0, applied=applied)


@pytest.mark.parametrize(
    ("applied", "counts"),
    [
        ({"scaler": SCALER}, (4, 900)),
        ({"scaler": None, "accelerate": {"version": "1", "skipped_steps": 2, "steps": 30}}, (2, 30)),
        ({"scaler": None}, (0, 0)),
    ],
)
def test_updates_left_out(applied: dict[str, Any], counts: tuple[int, int]) -> None:
    assert left_out(record(**applied).applied) == counts
    said = dict(facts(record(**applied))).get("fp16")
    assert said == (
        f"{counts[0]} of {counts[1]} updates were left out, because their gradients were not finite in fp16"
        if counts[0]
        else None
    )


def test_a_run_that_never_said_a_word_has_nothing_to_tell() -> None:
    broken = run(1.0, applied=None)
    assert left_out(broken.applied) == (0, 0) and number_formats(broken.applied) is None


def _flowed(told: Record) -> str:
    formats = number_formats(told.applied)
    assert formats is not None
    return flowed(formats)


def test_what_flowed() -> None:
    assert _flowed(record(**HALF)) == "weights float32, layers gave float16 and float32"
    tf32 = record(dtypes={"parameters": ["float32"]}, tf32={"matmul": True, "convolution": True})
    assert _flowed(tf32) == "weights float32, products rounded to TF32"
    fp8 = record(dtypes={"parameters": ["float32"]}, fp8={"linear_layers": 2, "converted": 1, "ran": 1, "share": 0.5})
    assert _flowed(fp8) == "weights float32, 1 of 2 linear layers in fp8"


def test_a_study_says_both() -> None:
    whole = {"dtypes": {"parameters": ["float32"], "compute": ["float32"]}}
    cells = (
        cell("precision=fp32", [run(1.0, applied=whole), run(1.1, applied=whole)]),
        cell("precision=fp16", [run(1.0, applied={**HALF, "scaler": SCALER}), run(1.1, applied={**HALF, "scaler": SCALER})]),
        cell("precision=fp8", [], skipped="on a CPU"),
    )  # fmt: skip
    notes = findings(study(*cells, swept=["precision"])).notes
    assert (
        "Formats as read back in the ranks - precision=fp32: weights float32, layers gave float32; precision=fp16: weights float32, "
        "layers gave float16 and float32." in notes
    )
    assert "precision=fp16: 8 of 1800 updates were left out, because their gradients were not finite in fp16." in notes
    plain = findings(study(*cells)).notes
    assert not any("read back" in note for note in plain), "only where precision is the question"
