"""All studies on one page: every claim of the five reports once, with its verdict and where it was judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import BadInput
from paceline.commands import all_studies
from paceline.commands.all_studies import All, claims, go_through, prepared
from paceline.commands.report import Reported, findings
from paceline.commands.study import Ready
from paceline.launch.warm import Warm
from paceline.records.claims import Claim, Told
from paceline.spec.host import here
from paceline.study.reports import parts
from unit.analysis.made import claim, study, timed


def test_claims_stand_in_the_order_of_the_reports() -> None:
    ours, late, early = (
        Claim("", "ours", "confirmed", "", "s"),
        Claim("E2", "x", "refuted", "", "s"),
        Claim("A1", "y", "confirmed", "", "t"),
    )
    found = claims([Told("s", (ours, late)), Told("t", (early,))])
    assert [c.of for c in found if c.study] == ["A1", "E2", ""]
    waiting = [c for c in found if not c.study]
    assert [c.claim for c in waiting] == [
        said for p in parts() for said in (*(fact.claim for fact in p.facts), *p.claims)
    ]
    named = {claim for part in parts() for claim in part.claims}
    assert all(
        c.verdict == "not tested here" and c.why.startswith("it waits for ") for c in waiting if c.claim in named
    )


def test_a_study_that_cannot_run_here_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without mpirun no cell of it can run. The others still do, and its claims are not left out."""
    poor = replace(here(), programs=frozenset(), packages=frozenset(), mpi=None)
    monkeypatch.setattr("paceline.commands.prepare.here", lambda: poor)
    told = prepared("gloo-vs-mpi", {}, repeats=None, quick=False, out=tmp_path, warm=None)
    assert isinstance(told, Told) and "mpirun" in told.why and len(told.claims) == 5
    assert {c.verdict for c in told.claims} == {"not tested here"}


def _reported() -> Reported:
    made = study(timed("a", 20.0), timed("b", 10.0), conclusions=[claim("time.training_s", "lower")], name="toy")
    return Reported(made, findings(made))


def test_each_in_turn_and_a_page_after_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(all_studies, "names", lambda: ["activations", "modules", "mnist-scaling"])
    begun: list[str] = []

    def run(what: Ready, warm: Warm) -> Reported:
        if what.file.study == "mnist-scaling-quick":
            raise KeyboardInterrupt
        return _reported()

    def begin(name: str, index: int, num: int) -> None:
        begun.append(f"{name} {index}/{num}")

    with pytest.raises(KeyboardInterrupt):
        go_through({}, run, begin=begin, repeats=1, quick=True, out=tmp_path)
    assert begun == ["activations 1/3", "modules 2/3", "mnist-scaling 3/3"]
    page = (tmp_path / "studies-quick.html").read_text()
    assert '<a href="activations-quick/report.html">activations</a>' in page and "mnist-scaling</a>" not in page


def test_words_of_no_use_to_a_study_do_not_stop_the_others(tmp_path: Path) -> None:
    told = prepared("activations", {"ragged": "true"}, repeats=None, quick=False, out=tmp_path, warm=None)
    assert isinstance(told, Told) and "ragged" in told.why


@pytest.mark.parametrize("words", [{"epocs": "1"}, {"epochs": "many"}])
def test_what_no_study_can_take_is_bad_input(words: dict[str, str], tmp_path: Path) -> None:
    """A typo must not be a page on which every claim is "not tested here"."""
    with pytest.raises(BadInput, match="epoc"):
        go_through(words, pytest.fail, begin=pytest.fail, repeats=None, quick=True, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_page_and_the_document_have_every_claim(tmp_path: Path) -> None:
    evil = Told(
        "<script>", (Claim("A1", "<b>", "refuted", "x < y", "<script>"),), headline="<i>", page="a b/report.html"
    )
    done = All(tmp_path, False, (evil,))
    done.write()
    page = done.page.read_text()
    assert done.page.name == "studies.html" and "<script>" not in page and "<b>" not in page
    assert 'href="a%20b/report.html"' in page and '<span class="tag bad">refuted</span>' in page
    plain: dict[str, Any] = done.plain()
    assert plain["schema"] == 1 and len(plain["claims"]) == 1 + sum(
        len(part.claims) + len(part.facts) for part in parts()
    )
    assert plain["claims"][0] == {
        "report": "A1",
        "claim": "<b>",
        "verdict": "refuted",
        "why": "x < y",
        "study": "<script>",
    }
