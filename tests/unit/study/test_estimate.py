"""How long a study of profiles takes: known from the runs that are done, never guessed from a trial."""

from __future__ import annotations

from pathlib import Path

from paceline.records.layout import StudyDir
from paceline.records.record import Record, parse
from paceline.spec.run import Spec
from paceline.study.estimate import from_runs, outlook


def profiled(took_s: float) -> Record:
    return parse({"outcome": "completed", "spec": {}, "time": None, "took_s": took_s, "profile": {}})


def test_no_trial_is_made_for_a_profile(tmp_path: Path) -> None:
    specs = {"a": Spec(task="features", profile="inference", steps=5)}
    look = outlook(StudyDir(tmp_path), specs, {"a": []}, baseline="a")
    assert look.of(["a"]) is None and "unknown until every cell has run once" in look.how
    assert list(tmp_path.iterdir()) == [], "nothing was started"


def test_what_profiles_took_is_known_afterwards(tmp_path: Path) -> None:
    done = {"a": [profiled(2.0), profiled(4.0)]}
    assert from_runs(done) == {"a": 3.0}
    look = outlook(StudyDir(tmp_path), {"a": Spec(task="features", profile="inference", steps=5)}, done, baseline="a")
    assert (look.of(["a"]), look.how) == (3.0, "from the runs that are done")
