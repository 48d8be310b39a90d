"""The line on top, for every way a study can end."""

from __future__ import annotations

from paceline.commands.report import findings
from paceline.records.study import CellRecord
from paceline.spec.settings import NOT_THE_RESULT, names
from unit.analysis.made import SHAKE, broken, cell, claim, profiled, run, study, timed

SCORES = [0.90, 0.91, 0.905, 0.902, 0.899]
WORSE = [0.80, 0.812, 0.803, 0.804, 0.798]


def _headline(*cells: CellRecord, **plan: object) -> str:
    return findings(study(*cells, **plan)).headline


def _to_target(label: str, seconds: float, *, missed: tuple[int, ...] = (), at: float | None = None) -> CellRecord:
    reached = seconds * 0.9 if at is None else at
    runs = [
        run(
            seconds,
            seed=i,
            spec={"target": 0.9},
            time={"to_target_s": None if i in missed else reached + i / 100},
        )
        for i in range(5)
    ]
    return cell(label, runs)


def test_names_the_fastest_with_its_interval_and_the_score() -> None:
    text = _headline(timed("a", 20.0), timed("b", 10.0), timed("c", 15.0))
    assert text.startswith("Use b: trains 2.00x as fast as a (95 % interval 2.00 to 2.00, n = 5)")
    assert "no difference shown in test accuracy" in text and "runner-up" not in text


def test_says_when_the_runner_up_is_as_good() -> None:
    assert "Not shown to differ from the runner-up, c." in _headline(
        timed("a", 20.0), timed("b", 10.0), timed("c", 10.05)
    )


def test_a_worse_score_is_said_plainly() -> None:
    text = _headline(timed("a", 20.0, accuracy=SCORES), timed("b", 10.0, accuracy=WORSE))
    assert not text.startswith("Use b") and "but test accuracy 80.34 % against 90.32 % is worse: -9.98 points" in text


def test_prefers_a_fast_cell_whose_score_holds() -> None:
    text = _headline(
        timed("a", 20.0, accuracy=SCORES), timed("b", 10.0, accuracy=WORSE), timed("c", 15.0, accuracy=SCORES)
    )
    assert text.startswith("Use c: trains 1.33x as fast as a") and "b is faster still" in text and "worse" in text


def test_a_score_that_differs_is_said_where_speed_shows_nothing() -> None:
    """A sweep of the learning rate: every cell takes as long, and one learns."""
    a, b = timed("a", 10.0, accuracy=WORSE, spec={"lr": 0.1}), timed("b", 10.02, accuracy=SCORES, spec={"lr": 0.01})
    text = _headline(a, b, timed("c", 10.03, accuracy=[x - 0.1 for x in WORSE], spec={"lr": 1.0}))
    assert text.startswith("Nothing is shown: no cell differs from a in training time")
    assert "Test accuracy of b is better: 90.32 % against 80.34 % of a, +9.98 points (95 % interval +9.76 to" in text
    assert text.endswith("n = 5); shown to differ too: c (worse).")
    slower = _headline(a, timed("b", 30.0, accuracy=SCORES))
    assert slower.startswith("Keep a: b takes 3.00x") and "Test accuracy of b is better: 90.32 % against" in slower


def test_a_better_score_than_the_fastest_has_is_said() -> None:
    cells = [timed("a", 20.0, accuracy=WORSE), timed("b", 10.0, accuracy=WORSE), timed("c", 30.0, accuracy=SCORES)]
    text = _headline(*cells)
    assert text.startswith("Use b: ") and "Test accuracy of c is better: 90.32 % against 80.34 % of a" in text
    assert "Test accuracy of" not in _headline(*cells[:2])


def test_a_sweep_of_what_changes_the_score_says_that_none_differs() -> None:
    silent = "No difference is shown in test accuracy (n = 5)."
    for name in ("lr", "batch", "precision", "optimizer", "sync_every", "params"):
        text = _headline(timed("a", 10.0, spec={name: "x"}), timed("b", 20.0, spec={name: "y"}))
        assert text.startswith("Keep a: ") and text.endswith(silent), name
    for name in ("on", "launcher", "threads", "graph", "accumulate", "sharding"):
        assert silent not in _headline(timed("a", 10.0, spec={name: "x"}), timed("b", 20.0, spec={name: "y"})), name


def test_what_cannot_change_the_score_is_a_setting() -> None:
    assert set(names()) >= NOT_THE_RESULT - {"task", "chosen", "probe", "inputs", "again"}


def test_scores_without_a_verdict_are_said_by_their_range() -> None:
    """Two runs a cell, or a baseline that failed."""
    cells = [timed(label, 10.0, n=2, accuracy=score, spec={"lr": score}) for label, score in (("a", 0.9), ("b", 0.8))]
    between = "Test accuracy lies between 80.00 % (b) and 90.00 % (a), without a verdict."
    assert _headline(*cells).endswith(f"a verdict needs 3). {between}")
    failed = cell("z", [broken("no memory", spec={"lr": 3.0})])
    assert _headline(failed, *cells).endswith(between)


def test_time_to_target_comes_first() -> None:
    text = _headline(_to_target("a", 20.0), _to_target("b", 10.0))
    assert text.startswith("Use b: 2.00x as fast as a to test accuracy 0.9 (")


def test_cells_that_missed_the_target_are_no_candidates() -> None:
    text = _headline(_to_target("a", 20.0), _to_target("b", 10.0), _to_target("c", 5.0, missed=(1, 3)))
    assert text.startswith("Use b") and "Not candidates" in text and "c (3 of 5 runs)" in text


def test_a_baseline_that_missed_the_target() -> None:
    text = _headline(_to_target("a", 20.0, missed=(0,)), _to_target("b", 10.0))
    assert text.startswith("Use b: reaches test accuracy 0.9 in 9.02 s") and "the baseline a did not reach it" in text


def test_a_target_nobody_reached_leaves_training_time() -> None:
    everyone = (0, 1, 2, 3, 4)
    text = _headline(_to_target("a", 20.0, missed=everyone), _to_target("b", 20.0, missed=everyone))
    assert "No cell reached test accuracy 0.9 in every run, so training time decides." in text


def test_nothing_is_shown() -> None:
    text = _headline(timed("a", 10.0), timed("b", 10.02))
    assert (
        text.startswith("Nothing is shown: no cell differs from a in training time")
        and "2 %" in text
        and "n = 5" in text
    )


def test_keep_the_baseline() -> None:
    assert _headline(timed("a", 10.0), timed("b", 20.0)).startswith("Keep a: b takes 2.00x its training time (95 %")
    mixed = _headline(timed("a", 10.0), timed("b", 20.0), timed("c", 10.02))
    assert mixed.startswith("Keep a: b takes 2.00x its training time") and "1 others are not shown to differ" in mixed
    two = _headline(timed("a", 10.0), timed("b", 40.0), timed("c", 20.0))
    assert two.startswith("Keep a: c, the nearest of 2 shown to be slower, takes 2.00x")


def test_training_time_speaks_where_time_to_target_shows_nothing() -> None:
    """Every run reaches the target at about the same time, but b takes twice as long to train to the end."""
    text = _headline(_to_target("a", 20.0, at=9.0), _to_target("b", 40.0, at=9.0))
    assert text.startswith("No difference shown in time to target; by training time: keep a: b takes 2.00x")


def test_too_few_runs() -> None:
    assert (
        _headline(timed("a", 10.0, n=2), timed("b", 5.0, n=2))
        == "Nothing is shown: too few runs (n = 2; a verdict needs 3)."
    )


def test_one_cell_only() -> None:
    text = _headline(timed("a", 10.0))
    assert (
        text.startswith("Nothing to compare: there is one cell. a trains in 10 s") and "test accuracy 90.00 %" in text
    )


def test_one_cell_left_standing() -> None:
    text = _headline(timed("a", 10.0), cell("b", [broken("no memory")]))
    assert text.startswith("Nothing to compare: only one cell completed a run.")


def test_all_failed() -> None:
    failed = [cell(label, [broken("no memory", seed=i) for i in range(3)]) for label in "ab"]
    text = _headline(*failed, cell("c", [], skipped="no GPU"))
    assert text == "Nothing is shown: no run completed (2 failed, 1 skipped)."


def test_the_baseline_failed() -> None:
    text = _headline(cell("a", [broken("no memory")]), timed("b", 10.0), timed("c", 20.0))
    assert text.startswith("Use b: trains in 10 s") and "the baseline a has no completed run" in text


def test_a_quick_study_says_so() -> None:
    assert _headline(timed("a", 20.0), timed("b", 10.0), quick=True).endswith("not evidence for the full size.")


def _profiles(label: str, share: float, *, n: int = 5, **types: float) -> CellRecord:
    runs = [
        profiled(share * by, {name: seconds * by for name, seconds in types.items()}, seed=i)
        for i, by in enumerate(SHAKE[:n])
    ]
    return cell(label, runs)


def test_profiles_are_compared_by_what_all_have_and_called_profiles() -> None:
    text = _headline(_profiles("a", 0.1, ReLU=1.0), _profiles("b", 0.6, Tanh=2.0))
    assert text.startswith("Batch assembly: b is +50.0 points from a (95 % interval +49") and "n = 5)" in text
    assert text.endswith("These are profiles: nothing is said of how fast a cell trains.") and "Use" not in text


def test_profiles_are_compared_by_what_the_study_asks() -> None:
    cells = [_profiles(label, 0.1, Linear=s) for label, s in (("a", 1.0), ("b", 1.5), ("c", 3.0), ("d", 1.0))]
    asked = [claim("profile.types.Linear.forward_s", "higher")]
    text = _headline(*cells, conclusions=asked)
    assert text.startswith(
        "Linear, forward: c is 3.00x a (95 % interval 3.00 to 3.00, n = 5); b slower; 1 not shown to differ."
    )


def test_profiles_that_show_nothing() -> None:
    same = _headline(_profiles("a", 0.1, Linear=1.0), _profiles("b", 0.1, Linear=1.0))
    assert same.startswith("Nothing is shown: no cell differs from a in batch assembly")
    few = _headline(_profiles("a", 0.1, n=2), _profiles("b", 0.6, n=2))
    assert few == "Nothing is shown: too few runs (n = 2; a verdict needs 3)."


def test_one_profile() -> None:
    text = _headline(_profiles("a", 0.1, Linear=1.0))
    assert text == "Nothing to compare: one cell was profiled. Batch assembly: a 10 % (n = 5)."


def test_profiles_without_a_common_figure() -> None:
    cells = [
        cell(label, [profiled(0.5, {name: 1.0}, seed=i) for i in range(3)])
        for label, name in (("a", "ReLU"), ("b", "GELU"))
    ]
    for one in cells:
        for _, record in one.records:
            record["profile"].pop("clean")
    text = _headline(*cells)
    assert text == "Profiles of 2 cells, with no figure that all have: ReLU, forward, GELU, forward."


def test_a_profile_beside_timings_is_no_candidate() -> None:
    text = _headline(timed("a", 10.0), _profiles("b", 0.1, Linear=1.0))
    assert text == "Nothing to compare: no cell but a has a training time."
