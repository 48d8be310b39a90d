"""Notes of a study on number formats: what was read back where precision is swept, and updates that were left out."""

from __future__ import annotations

from paceline.records.formats import flowed, left_out, left_out_in_words
from paceline.records.study import StudyRecord


def notes(study: StudyRecord) -> list[str]:
    found: list[str] = []
    if "precision" in study.plan.swept:
        rows = {
            cell.plan.label: {said for _, record in cell.completed if (said := flowed(record)) is not None}
            for cell in study.cells
        }
        told = [f"{label}: {' or '.join(sorted(said))}" for label, said in rows.items() if said]
        found += [f"Formats as read back in the ranks - {'; '.join(told)}."] if told else []
    for cell in study.cells:
        counts = [left_out(record) for _, record in cell.completed]
        num, of = sum(num for num, _ in counts), sum(of for _, of in counts)
        if num:
            found.append(f"{cell.plan.label}: {left_out_in_words(num, of)}.")
    return found
