"""Two swept settings: main effects and interactions with known answers, on the scale they are measured on; gaps are said."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.commands.report import findings
from paceline.records.study import CellRecord, StudyRecord
from paceline.report import markdown, plain, tables
from paceline.report.words.spoken import SpokenGrid
from unit.analysis.made import SHAKE, broken, cell, run, study, timed

LEVELS = [(batch, graph) for batch in (32, 256) for graph in ("eager", "step")]
Seconds = dict[tuple[int, str], float]


def _label(batch: int, graph: str) -> str:
    return f"batch={batch} graph={graph}"


def _cell(place: tuple[int, str], seconds: float, **changes: Any) -> CellRecord:
    batch, graph = place
    # Noise of its own, beside the shake that all cells share: without any, an interval is a point.
    index = LEVELS.index(place)
    runs = [
        run(seconds * shake * math.exp(0.004 * math.sin(7 * i + 3 * index)), seed=i, accuracy=changes.get("accuracy", 0.9))
        for i, shake in enumerate(SHAKE[: changes.get("n", 5)])
    ]  # fmt: skip
    return cell(_label(batch, graph), runs, settings={"batch": batch, "graph": graph})


def _grid(made: StudyRecord) -> SpokenGrid:
    found = findings(made).grid
    assert found is not None
    return found


def _study(*cells: CellRecord, **plan: Any) -> StudyRecord:
    return study(*cells, swept=["batch", "graph"], **plan)


INTERACT: Seconds = {(32, "eager"): 18.0, (32, "step"): 10.0, (256, "eager"): 5.5, (256, "step"): 5.0}
APART: Seconds = {(32, "eager"): 18.0, (32, "step"): 10.0, (256, "eager"): 9.0, (256, "step"): 5.0}


def test_what_each_setting_is_worth_and_that_it_depends_on_the_other() -> None:
    found = _grid(_study(*(_cell(place, seconds) for place, seconds in INTERACT.items())))
    batch, graph = (one for one in found.effects if one.metric == "time.training_s")
    assert (graph.of, graph.against, graph.over) == ("graph=step", "graph=eager", ("batch=32", "batch=256"))
    assert graph.worth.value == pytest.approx(math.sqrt(1.8 * 1.1), rel=0.01) and graph.verdict == "faster"
    assert batch.worth.value == pytest.approx(math.sqrt(18 / 5.5 * 10 / 5), rel=0.01) and batch.n == 5
    assert graph.worth.low is not None and graph.worth.high is not None
    assert graph.worth.low < graph.worth.value < graph.worth.high
    (both,) = (one for one in found.interactions if one.metric == "time.training_s")
    assert both.shown and both.apart.value == pytest.approx(1.1 / 1.8, rel=0.01)
    assert [one.value for one in both.worth] == pytest.approx([1.8, 1.1], rel=0.01)
    assert "x as fast as graph=eager at batch=32 and 1.10x at batch=256: the two settings interact (" in both.words


def test_settings_that_multiply_do_not_interact() -> None:
    (both, *_) = _grid(_study(*(_cell(place, seconds) for place, seconds in APART.items()))).interactions
    assert not both.shown and both.reason in ("chance", "small") and "no interaction is shown" in both.words


def test_scores_are_differences_and_their_interaction_is_one_of_differences() -> None:
    better = {place: 0.9 + 0.05 * (place == (256, "step")) for place in LEVELS}
    found = _grid(_study(*(_cell(place, 5.0, accuracy=better[place]) for place in LEVELS)))
    (both,) = (one for one in found.interactions if one.metric == "test.accuracy")
    assert both.shown and both.apart.value == pytest.approx(0.05) and "+5.00 points apart" in both.words
    effect = next(one for one in found.effects if one.metric == "test.accuracy" and one.of == "graph=step")
    assert effect.verdict == "better" and effect.worth.value == pytest.approx(0.025) and "+2.50 points" in effect.words


def test_the_blocks_that_all_cells_share_are_in_no_interval() -> None:
    """Repeats half as slow again shift every cell alike: paired by repeat, that widens nothing."""
    slow = [1.0, 1.5, 1.0, 2.0, 1.0]
    cells = [
        cell(
            _label(*place),
            [run(s * b * (1 + 1e-3 * i * k), seed=i) for i, b in enumerate(slow)],
            settings={"batch": place[0], "graph": place[1]},
        )
        for k, (place, s) in enumerate(INTERACT.items())
    ]
    effect = _grid(_study(*cells)).effects[0]
    assert (
        effect.worth.low is not None and effect.worth.high is not None and effect.worth.high / effect.worth.low < 1.02
    )


def test_two_repeats_are_too_few() -> None:
    found = _grid(_study(*(_cell(place, seconds, n=2) for place, seconds in INTERACT.items())))
    assert {one.verdict for one in found.effects} == {"too few runs"} and not any(
        one.shown for one in found.interactions
    )
    assert all(one.worth.low is None and one.p is None for one in found.effects)
    assert "too few runs to say whether they interact" in found.interactions[0].words


@pytest.mark.parametrize(
    "gap",
    [
        cell("batch=256 graph=step", [], skipped="no compiler", settings={"batch": 256, "graph": "step"}),
        cell("batch=256 graph=step", [broken("x")] * 5, settings={"batch": 256, "graph": "step"}),
        cell("batch=256 graph=step", [None] * 5, settings={"batch": 256, "graph": "step"}),
    ],
)
def test_a_grid_with_a_gap_is_said_and_not_guessed(gap: CellRecord) -> None:
    cells = [_cell(place, INTERACT[place]) for place in LEVELS[:3]]
    found = _grid(_study(*cells, gap))
    assert found.effects == () == found.interactions and found.lacking == ("batch=256 graph=step",)
    assert "nothing can be said" in found.gap and "batch=256 graph=step" in found.gap


def test_a_repeat_that_one_cell_lacks_is_left_out_of_all() -> None:
    whole = [_cell(place, INTERACT[place]) for place in LEVELS]
    runs = [record for _, record in whole[3].records]
    part = cell("batch=256 graph=step", [runs[0], broken("x"), *runs[2:]], settings={"batch": 256, "graph": "step"})
    found = _grid(_study(*whole[:3], part))
    assert {one.n for one in found.effects} == {4} and "only the repeats that every cell has" in found.gap


def test_no_full_grid_no_effects() -> None:
    three = _study(*(_cell(place, INTERACT[place]) for place in LEVELS[:3]))
    assert findings(three).grid is None
    assert findings(study(timed("a", 1.0), timed("b", 2.0))).grid is None


def test_the_sentences_are_on_the_page_in_markdown_and_in_the_json() -> None:
    made = _study(*(_cell(place, seconds) for place, seconds in INTERACT.items()))
    found = findings(made)
    said = "the two settings interact"
    assert said in markdown.render(found) and [table.name for table in tables.all_tables(found)][1] == "grid"
    document = plain.render(found)["grid"]
    assert document["settings"] == ("batch", "graph") and said in document["interactions"][0]["words"]
    assert {"of", "against", "worth", "n", "p", "verdict"} <= document["effects"][0].keys()
