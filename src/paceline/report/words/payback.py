"""When a graph is paid back, in sentences: what making it took, what its steps save, and what it could not hold."""

from __future__ import annotations

from paceline.records.findings import MIN_RUNS, Payback
from paceline.report.words.figures import figure_in, steps_in_words


def sentences(row: Payback) -> str:
    took = f"Making the graph took {figure_in(row.compile_s, 1, 's')}."
    quick, slow = (figure_in(figure, 1e3, "ms") for figure in (row.step_s, row.eager_step_s))
    return f"{took} A step then takes {quick} instead of {slow} of {row.baseline}: {_end(row)}{_disturbed(row)}"


def _end(row: Payback) -> str:
    n = row.saved_s.n
    after = "" if row.steps is None else f"after {steps_in_words(row.steps)} steps"
    match row.verdict:
        case "paid back":
            enough = "enough" if row.steps is not None and row.made_steps >= row.steps.mean else "too few"
            return f"paid back {after} (n = {n}); these runs had {row.made_steps:,.0f}, {enough}."
        case "never":
            return f"never paid back (n = {n})."
        case "not shown":
            return f"no difference in speed is shown, so no number of steps can be named (n = {n})."
        case "too few runs":
            text = f"paid back {after}" if after else "never paid back"
            return f"by these runs {text}, but it takes {MIN_RUNS} paired runs to say so (n = {n})."


def _disturbed(row: Payback) -> str:
    """What the graph could not hold, as torch said it."""
    breaks, again = row.counts["breaks"], row.counts["recompiles"]
    text = f" The graph broke in {breaks:g} place{'' if breaks == 1 else 's'}" if breaks else ""
    text += f": {row.reasons[0]}." if breaks and row.reasons else "." if breaks else ""
    return text + (f" It was compiled again {again:g} time{'' if again == 1 else 's'}." if again else "")
