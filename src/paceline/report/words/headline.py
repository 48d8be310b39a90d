"""The line on top as sentences: what to use and why, or that nothing is shown. What it says was concluded in `analysis/headline.py`."""

from __future__ import annotations

from paceline.records.findings import MIN_RUNS, CellFinding, Comparison, Interval, Metric
from paceline.records.headline import (
    Choice,
    Fastest,
    KeepBaseline,
    Main,
    NoDifference,
    NoFigure,
    NothingCompleted,
    OneCell,
    OneProfile,
    ProfilesApart,
    ProfilesDiffer,
    RankedOnly,
    Scores,
    TooFewRuns,
)  # fmt: skip
from paceline.records.study_findings import StudyFindings
from paceline.report.words import missing
from paceline.report.words.figures import (
    capitalized,
    difference_in_words,
    interval_in_words,
    lowered,
    size_in_words,
    steps_in_words,
)  # fmt: skip

_TRAINING, _TO_TARGET = "time.training_s", "time.to_target_s"
_OTHERS = 3  # more cells than these are counted
QUICK = "Quick study: scaled down, not evidence for the full size."


def _seconds(figure: Interval) -> str:
    return f"{figure.mean:.3g} s {interval_in_words(figure.low, figure.high, figure.n, '.3g')}"


def _target(study: StudyFindings) -> str:
    return f"{study.score.title if study.score else 'the target'} {study.target:g}"


def _one_cell(concluded: OneCell, study: StudyFindings) -> str:
    figures, score = concluded.cell.metrics, study.score
    words = [f"{concluded.cell.label} trains in {_seconds(figures[_TRAINING])}"] if _TRAINING in figures else []
    if score and score.name in figures:
        words.append(f"{score.title} {_scored(concluded.cell, score)}")
    only = "only one cell completed a run" if concluded.others else "there is one cell"
    return f"Nothing to compare: {only}. {', '.join(words)}{'.' if words else ''}".strip()


def _scored(cell: CellFinding, score: Metric) -> str:
    mean = cell.metrics[score.name].mean
    return f"{mean * 100:.2f} %" if score.unit == "fraction" else f"{mean:.4g}"


def _two_scores(compared: Comparison, score: Metric, study: StudyFindings) -> str:
    """The candidate's own score beside the baseline's: how much is lost says little without what there was."""
    one, other = (next(c for c in study.cells if c.label == label) for label in (compared.candidate, compared.baseline))
    return f"{_scored(one, score)} against {_scored(other, score)}"


def _score(choice: Choice, study: StudyFindings) -> str:
    compared, score = choice.score, study.score
    if compared is None or score is None:
        return "no score to compare"
    by = difference_in_words(compared, score, digits="+.2f")
    if compared.verdict in ("no difference shown", "too few runs"):
        return f"{compared.verdict} in {score.title}: {by}"
    return f"{score.title} {_two_scores(compared, score, study)} is {compared.verdict}: {by}"


def _speed(choice: Choice, metric: Metric, study: StudyFindings) -> str:
    fast = choice.speedup
    goal = f" to {_target(study)}" if metric.name == _TO_TARGET else ""
    verb = "" if goal else "trains "
    around = interval_in_words(fast.low, fast.high, fast.n, ".2f")
    return f"{verb}{fast.value:.2f}x as fast as {fast.baseline}{goal} {around}"


def _runner_up(label: str | None) -> str:
    return f" Not shown to differ from the runner-up, {label}." if label else ""


def _fastest(concluded: Fastest, study: StudyFindings) -> str:
    best, safe, metric = concluded.best, concluded.safe, concluded.metric
    speed, score = _speed(best, metric, study), _score(best, study)
    if not best.worse:
        return f"Use {best.label}: {speed}; {score}.{_runner_up(concluded.runner_up)}"
    if safe is None:
        choice = f"No cell is shown to be faster than {best.speedup.baseline} without a worse score."
        return f"{choice} Fastest is {best.label}: {speed}, but {score}."
    choice = f"Use {safe.label}: {_speed(safe, metric, study)}; {_score(safe, study)}."
    return f"{choice} {best.label} is faster still ({speed}), but {score}."


def _keep(concluded: KeepBaseline, baseline: str) -> str:
    near = concluded.nearest
    which = f", the nearest of {concluded.num_slower} shown to be slower," if concluded.num_slower > 1 else ""
    took = f"{near.candidate}{which} takes {near.value:.2f}x its {concluded.metric.title}"
    others = f" {concluded.num_others} others are not shown to differ." if concluded.num_others else ""
    return f"Keep {baseline}: {took} {interval_in_words(near.low, near.high, near.n, '.2f')}.{others}"


def _ranked(concluded: RankedOnly, study: StudyFindings) -> str:
    metric, first = concluded.metric, concluded.first
    to_target = metric.name == _TO_TARGET
    why = "did not reach it in every run" if to_target else "has no completed run"
    if first is None:
        return f"Nothing is shown: the baseline {study.baseline} {why}, and no other cell has {MIN_RUNS} runs."
    does = f"reaches {_target(study)}" if to_target else "trains"
    took = _seconds(first.metrics[metric.name])
    return f"Use {first.label}: {does} in {took}; the baseline {study.baseline} {why}.{_runner_up(concluded.runner_up)}"


def _one_profile(concluded: OneProfile) -> str:
    metric, figure = concluded.metric, concluded.figure
    scale, unit = (100, " %") if metric.unit == "fraction" else (1, f" {metric.unit}" if metric.unit else "")
    shown = f"{concluded.label} {figure.mean * scale:.3g}{unit} (n = {figure.n})"
    return f"Nothing to compare: one cell was profiled. {capitalized(metric.title)}: {shown}."


def _by(compared: Comparison, metric: Metric) -> str:
    """How far a cell's figure is from the baseline's."""
    if metric.kind == "ratio":
        return f"{compared.value:.2f}x {compared.baseline} {interval_in_words(compared.low, compared.high, compared.n, '.2f')}"
    return difference_in_words(compared, metric, digits="+.1f", unit_of=f" from {compared.baseline}")


def _profiles(concluded: ProfilesDiffer) -> str:
    metric, most = concluded.metric, concluded.most
    text = f"{capitalized(metric.title)}: {most.candidate} is {_by(most, metric)}"
    others = ", ".join(f"{c.candidate} {c.verdict}" for c in concluded.others)
    text += f"; {others}" if others else ""
    text += f"; {concluded.num_silent} not shown to differ" if concluded.num_silent else ""
    return f"{text}. These are profiles: nothing is said of how fast a cell trains."


def _scores(concluded: Scores, study: StudyFindings) -> str:
    metric, shown = concluded.metric, concluded.shown
    if shown:
        most, *rest = shown
        by = difference_in_words(most, metric, digits="+.2f")
        others = ", ".join(f"{c.candidate} ({c.verdict})" for c in rest[:_OTHERS])
        others += f" and {len(rest) - _OTHERS} more" if len(rest) > _OTHERS else ""
        text = f"{capitalized(metric.title)} of {most.candidate} is {most.verdict}: {_two_scores(most, metric, study)} of {most.baseline}"
        return f"{text}, {by}{f'; shown to differ too: {others}' if others else ''}."
    if concluded.ends is not None:
        (low, high), name = concluded.ends, capitalized(metric.title)
        return f"{name} lies between {_scored(low, metric)} ({low.label}) and {_scored(high, metric)} ({high.label}), without a verdict."
    return f"No difference is shown in {metric.title} (n = {concluded.n})."


def _main(concluded: Main, study: StudyFindings) -> str:
    match concluded:
        case NothingCompleted(outcomes):
            return f"Nothing is shown: no run completed ({', '.join(f'{n} {outcome}' for outcome, n in outcomes.items())})."
        case OneCell():
            return _one_cell(concluded, study)
        case Fastest():
            return _fastest(concluded, study)
        case NoFigure(metric):
            return f"Nothing to compare: no cell but {study.baseline} has a {metric.title}."
        case TooFewRuns(n):
            return f"Nothing is shown: too few runs (n = {n}; a verdict needs {MIN_RUNS})."
        case KeepBaseline():
            return _keep(concluded, study.baseline)
        case NoDifference(metric, n):
            beyond = f"chance and the practical size of {size_in_words(metric)} (n = {n})"
            return f"Nothing is shown: no cell differs from {study.baseline} in {metric.title} by more than {beyond}."
        case RankedOnly():
            return _ranked(concluded, study)
        case ProfilesApart(num, metrics):
            titles = ", ".join(metric.title for metric in metrics[:4]) or "nothing was measured"
            return f"Profiles of {num} cells, with no figure that all have: {titles}."
        case OneProfile():
            return _one_profile(concluded)
        case ProfilesDiffer():
            return _profiles(concluded)


def headline(study: StudyFindings) -> str:
    concluded = study.conclusion
    text = _main(concluded.main, study)
    if concluded.silent is not None:
        text = f"No difference shown in {concluded.silent.title}; by training time: {lowered(text)}"
    if concluded.scores is not None:
        text += f" {_scores(concluded.scores, study)}"
    if concluded.missed:
        told = ", ".join(f"{c.label} ({c.reached} of {c.n} runs)" for c in concluded.missed)
        text += f" Not candidates, because not every run reached {_target(study)}: {told}."
    if concluded.target_missed:
        text += f" No cell reached {_target(study)} in every run, so training time decides."
    if (slow := concluded.slow) is not None:
        text += (
            f" Why {slow.label} is {slow.speedup:.2f}x as fast and not {slow.ideal:g}x: {lowered(missing.answer(slow))}"
        )
    if (paid := concluded.paid_back) is not None and paid.steps is not None:
        text += f" Soonest paid back: {paid.label}, after {steps_in_words(paid.steps)} steps."
    elif study.payback:
        text += " No graph is shown to be paid back."
    done = any(cell.n for cell in study.cells)
    return f"{text} {QUICK}" if study.quick and done else text
