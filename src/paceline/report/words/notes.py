"""What stands beside the figures of a study: its notes, and how intervals and verdicts were made."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.records.findings import ALPHA, MIN_RUNS, CellFinding, Scaling
from paceline.records.study_findings import RunCounts, StudyFindings
from paceline.report.words import provenance
from paceline.report.words.figures import points, size_in_words
from paceline.report.words.formats import flowed, left_out_in_words
from paceline.report.words.held_back import straggler

_SCALING = {
    "strong": "strong scaling, the global batch is the same everywhere; speed-up is a ratio of training times",
    "weak": "weak scaling, the batch per rank is the same and the global batch grows; speed-up is a ratio of throughputs",
    "mixed": "mixed scaling, neither the global batch nor the batch per rank is the same; speed-up is a ratio of throughputs",
}


def method(study: StudyFindings) -> str:
    tested = study.tested
    pairing = {True: "paired by repeat (same seed, same block)", False: "unpaired (Welch)"}
    ways = " or ".join(pairing[paired] for paired in sorted({c.paired for c in study.comparisons}, reverse=True))
    sizes = "; ".join(f"{m.title} {size_in_words(m)}" for m in study.metrics if m.compared)
    text = (
        "Intervals are 95 % t intervals of the mean, on the log scale for times, rates and memory; the run is the unit, n counts "
        "completed runs, ± is the standard deviation."
    )
    if not tested:
        return text
    return (
        f"{text} Differences are {ways}, on the log scale for ratios. A verdict needs p < {ALPHA:g} after Benjamini-Hochberg "
        f"control over all {tested} comparisons, at least {MIN_RUNS} runs, and an estimate beyond the practical size ({sizes})."
    )


def changed_in_words(study: StudyFindings) -> str:
    """What the command line made of the study: its verdicts are about that."""
    how = "Scaled down on the command line" if study.scaled_down else "Changed on the command line"
    return f"{how}: {'; '.join(study.changed)}; verdicts are about what was run"


def _runs(study: StudyFindings) -> list[str]:
    counts, notes = study.counts, list[str]()
    if study.loose:
        notes.append("These runs were not one study: order and seeds were not controlled, so differences are unpaired.")
    if study.quick:
        notes.append(
            "Quick study: scaled down, so it gives no verdict on a report's conclusion and is not evidence for the full size."
        )
    if study.changed:
        notes.append(f"{changed_in_words(study)}.")
    if counts.to_make > 0:
        notes.append(f"Unfinished: {counts.to_make} planned runs are still to be made.")
    if counts.unsteady:
        notes.append(f"Throughput of {counts.unsteady} runs includes warm-up: they have no step beyond it.")
    if counts.stopped:
        notes.append(
            f"Of the runs, {counts.stopped} ended before the planned length (stop_at): their times are of as many steps as each made."
        )
    return notes


def _evaluated(counts: RunCounts) -> list[str]:
    """Said of every study: how much of the test set the scores stand on."""
    if len(counts.evaluated) == 1:
        ((done, of),) = counts.evaluated
        return [
            f"Every test score is over all ranks together: evaluated {done} of {of} samples in every completed run."
        ]
    return ["The runs were not scored on the same number of test samples."] if counts.evaluated else []


def _formats(study: StudyFindings) -> list[str]:
    """What was read back where precision is swept, and updates that were left out."""
    told = [(cell.label, sorted({flowed(one) for one in cell.formats})) for cell in study.cells if cell.formats]
    read_back = "; ".join(f"{label}: {' or '.join(formats)}" for label, formats in told)
    notes = [f"Formats as read back in the ranks - {read_back}."] if told and "precision" in study.swept else []
    return notes + [f"{cell.label}: {left_out_in_words(*cell.left_out)}." for cell in study.cells if cell.left_out[0]]


def _slow(cells: Sequence[CellFinding]) -> list[str]:
    """Cells that get too little data, and ranks that the others wait for."""
    hungry = [(cell.label, cell.bound_share) for cell in cells if cell.bound_by == "data" and cell.bound_share]
    listed = ", ".join(f"{label} ({points(share)})" for label, share in hungry)
    notes = [f"Input-bound, getting batches is the largest part of a training step: {listed}."] if hungry else []
    return notes + [f"{cell.label}: {straggler(rank)}." for cell in cells for rank in cell.stragglers]


def _scaling(rows: Sequence[Scaling]) -> list[str]:
    kinds = dict.fromkeys(row.kind for row in rows if row.label != row.baseline)
    return [f"Scaling: {_SCALING[kind]}." for kind in kinds]


def _warnings(study: StudyFindings) -> list[str]:
    return [f"Warning ({kind}): {text}" for kind, text in study.warnings]


def fitted(budget_s: float) -> str:
    return f"The number of repeats was fitted to a budget of {budget_s:g} s."


def notes(study: StudyFindings) -> tuple[str, ...]:
    return (
        *study.author_notes, *_warnings(study), *_runs(study), *_evaluated(study.counts), *_formats(study), *_slow(study.cells),
        *_scaling(study.scaling), *provenance.notes(study.fingerprints),
    )  # fmt: skip
