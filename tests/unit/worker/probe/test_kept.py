"""A verdict that is kept: for the same task and data, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.spec.inputs import Inputs, stamp_of
from paceline.spec.verdict import Verdict
from paceline.worker.probe.kept import KeptVerdict

SAMPLES = {"train": (10, (("a", "b"),)), "test": (4, (("c", "d"),))}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "lazy.csv").write_text("1")
    path = tmp_path / "task.py"
    path.write_text("x = 1")
    return path


def asked(source: Path, samples: Any = SAMPLES, *, verdict: Verdict | None = None, **more: Any) -> tuple[bool, Inputs]:
    """Whether the probe was made again, and what the run then depends on. The probe itself reads another file."""
    made: list[int] = []
    read = Inputs(modules={str(source): stamp_of(source)})
    kept = KeptVerdict({"task": str(source), "seed": 1, **more}, lambda: read)

    def probe() -> Verdict:
        made.append(1)
        return verdict or Verdict(loss="coupled", samples=7)

    found = kept.or_made(samples, probe)
    assert found == (verdict or Verdict(loss="coupled", samples=7))
    lazy = source.parent / "lazy.csv"
    end = read.model_copy(update={"files": {str(lazy): stamp_of(lazy)}}) if made else read
    inputs = kept.with_what_was_read_then(end.model_copy(update={"samples": samples, "seed": 1}))
    kept.keep(inputs)
    return bool(made), inputs


def test_the_same_task_is_probed_once_and_depends_on_what_the_probe_read(source: Path) -> None:
    first, then = asked(source)
    again, now = asked(source)
    assert (first, again) == (True, False)
    assert now == then and str(source.parent / "lazy.csv") in now.files


@pytest.mark.parametrize("what", ["source", "file", "samples", "number", "parameter"])
def test_what_has_changed_is_probed_again(source: Path, what: str) -> None:
    asked(source)
    samples: Any = SAMPLES
    more: dict[str, Any] = {}
    if what == "source":
        source.write_text("x = 2")
    elif what == "file":
        (source.parent / "lazy.csv").write_text("2")
    elif what == "samples":
        samples = {**SAMPLES, "train": (10, (("a", "other"),))}
    elif what == "number":
        samples = {**SAMPLES, "test": (5, (("c", "d"),))}
    else:
        more = {"params": {"hidden": "3"}}
    assert asked(source, samples, **more)[0]
    assert not asked(source, samples, **more)[0]


def test_no_verdict_is_kept_that_could_not_be_reached(source: Path) -> None:
    unknown = Verdict(unknown="out of memory")
    assert asked(source, verdict=unknown)[0]
    assert asked(source, verdict=unknown)[0]


def test_a_damaged_file_is_made_again(source: Path) -> None:
    asked(source)
    (kept,) = (source.parent / "cache" / "probes").iterdir()
    kept.write_text('{"verdict": {"loss": 3}}')
    assert asked(source)[0]
    assert not asked(source)[0]
