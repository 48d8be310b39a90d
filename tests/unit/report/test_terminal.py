"""What a person sees on the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from paceline.records.findings import FailedLog, FailedRuns
from paceline.records.gather import refusal
from paceline.records.record import Record, parse
from paceline.records.study import StudyRecord
from paceline.report import terminal
from paceline.report.words.progress import Position, ended
from paceline.report.words.spoken import SpokenStudy


def _console(width: int = 160) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _run(record: Record) -> str:
    console = _console()
    terminal.print_run(console, record)
    return _text(console)


def test_a_study_answers_first(found: SpokenStudy) -> None:
    console = _console()
    terminal.print_study(console, found)
    text = _text(console)
    assert text.index("Use 2x2") < text.index("Cells") < text.index("Comparisons")
    assert text.index("efficiency is") < text.index("Why not 2 or 4 times as fast?") < text.index("Runs that did not")
    assert "compute-bound" in text and "2x2: rank 3 on bench-2 came" in text
    assert "186 s" in text and "97.77 %" in text  # the report's figures beside ours
    assert "evaluated 2000 of 2000" in text and "Example CPU" in text and "commit 0123456789ab" in text
    assert "out of memory: <b>4 GiB</b>" in text


def test_a_failed_run_names_its_log_on_one_line(found: SpokenStudy) -> None:
    folder = "/runs/" + "a-long-name/" * 9
    record = parse(
        {**refusal({"task": "t"}, "x").plain, "outcome": "failed", "run_dir": folder, "log": "logs/rank_00001.err"}
    )
    console = _console(60)
    terminal.print_run(console, record)
    assert f"log: {folder}logs/rank_00001.err" in _text(console)
    failed = FailedRuns("task", "x", 2, (FailedLog(0, f"{folder}0.err"), FailedLog(3, f"{folder}3.err")))
    terminal.print_study(console, replace(found, cells=(replace(found.cells[4], failures=(failed,)),)))
    assert f"log of 2x4 repeat 1: {folder}0.err" in _text(console)
    assert f"; log: {folder}logs/rank_00001.err" in ended(Position(1, 2, "2x4", 0), record)


def test_markup_in_user_text_is_text(found: SpokenStudy) -> None:
    console = _console()
    cell = replace(found.cells[0], label="[red]z")
    terminal.print_study(console, replace(found, headline="[red]x[/red]", notes=("[bold]y",), cells=(cell,)))
    for text in ("[red]x[/red]", "[bold]y", "[red]z"):
        assert text in _text(console)


def test_a_run(scaling: StudyRecord) -> None:
    console = _console()
    terminal.print_run(console, scaling.cells[1].records[0][1])
    text = _text(console)
    assert "completed  mnist-convnet on 1x2, seed 100" in text and "evaluated 2000 of 2000" in text
    assert "own test accuracy" in text and "bench-1" in text
    for word in ("startup", "forward", "other", "wall", "throughput", "memory", "time to target", "run directory"):
        assert word in text


def test_the_time_of_a_run_has_shares_and_what_is_in_no_part(scaling: StudyRecord) -> None:
    record = scaling.cells[3].records[0][1]
    lines = _run(record).splitlines()
    time = lines[lines.index("Time") : lines.index("Training time by rank")]
    shares = {words[0]: words[-2] for line in time if (words := line.split())[-1:] == ["%"]}
    assert shares["wall"] == "100" and {"startup", "import", "model", "waiting", "transfer"} <= shares.keys()
    assert "other" not in shares  # it has a line of its own, with more digits
    assert any(line.startswith("unexplained: 100 ms, 0.") and line.endswith("% of the wall time") for line in lines)
    assert lines.index("Time") < next(i for i, line in enumerate(lines) if line.startswith("  launch"))


def test_ranks_are_told_apart_and_the_late_one_is_named(scaling: StudyRecord) -> None:
    text = _run(scaling.cells[3].records[0][1])
    assert "Training time by rank" in text and "came last" in text
    assert "a step after the others, and last in 98 % of the steps" in text
    assert "Compute-bound: 7" in text and "% of the training steps' time goes into computing." in text
    assert "Training time by rank" not in _run(scaling.cells[0].records[0][1])  # one rank: there is nobody to compare


def test_memory_energy_and_cost(scaling: StudyRecord) -> None:
    plain = scaling.cells[0].records[0][1].plain
    energy = {"joules": 1234.0, "joules_per_sample": 0.5, "sources": ["GPU 0 (NVML)"], "why": None}
    cost = {"device_hours": 2.0, "price": 1.5, "total": 3.0}
    memory = {**plain["memory"], "reserved_bytes": 2**30, "data_shared": True, "sizes": {"data": 7 * 2**20}}
    text = _run(parse({**plain, "energy": energy, "cost": cost, "memory": memory}))
    for words in (
        "activations               30.0 MiB      75 %", "optimizer state", "peak of a training step   40.0 MiB     100 %", "between steps",
        "at the peak in backward", "process memory: 30", "290 MiB at the end", "device memory reserved: 1.00 GiB",
        "data set                  5.00 MiB      12 %", "without the data set      35.0 MiB      88 %",
        "machine memory: 200 MiB, all ranks of a machine",
        "beside these: the data set, 7.00 MiB, once for all ranks",
        "energy: 1234 J, 0.500 J a sample (GPU 0 (NVML))", "cost: 3 (2 device hours at 1.5 an hour)",
    ):  # fmt: skip
        assert words in text, words


def test_what_was_not_measured_says_why(scaling: StudyRecord) -> None:
    plain = scaling.cells[0].records[0][1].plain
    energy = {"joules": None, "joules_per_sample": None, "sources": [], "why": "no energy counter"}
    memory = {**plain["memory"], "peak_bytes": None, "allocator": None, "why": "another malloc is preloaded"}
    text = _run(parse({**plain, "energy": energy, "memory": memory}))
    assert "energy: not measured: no energy counter" in text and "cost" not in text
    assert "memory by part: not measured: another malloc is preloaded" in text and "activations" not in text


def test_hidden_communication_stands_beside_the_parts(scaling: StudyRecord) -> None:
    plain = scaling.cells[1].records[0][1].plain
    text = _run(parse({**plain, "time": {**plain["time"], "hidden_s": 1.25}}))
    assert "hidden communication: 1.25 s while the rank computed; in no part" in text
    assert "hidden" not in _run(parse(plain))


def test_parts_that_are_not_told_apart_are_left_out(scaling: StudyRecord) -> None:
    """A step in one piece: its parts are null, and nothing is said of what held it back but what is known."""
    plain = scaling.cells[1].records[0][1].plain
    one = {
        "startup": 1.0,
        "forward": None,
        "backward": None,
        "waiting": None,
        "transfer": None,
        "step": 20.0,
        "other": 0.1,
    }
    ranks = [{**rank, "time": {"data": 1.0, "step": 20.0}, "late": None} for rank in plain["ranks"]]
    text = _run(parse({**plain, "time": {**plain["time"], "parts": one, "startup": {}}, "ranks": ranks}))
    assert "step" in text and "forward" not in text and "-bound" not in text and "None" not in text


def test_a_record_of_an_older_time_is_still_shown(scaling: StudyRecord) -> None:
    """Without the fields that came later: no start-up parts, no memory parts, no energy, no lateness."""
    newer = ("energy", "cost", "steps", "samples")
    plain = {name: value for name, value in scaling.cells[1].records[0][1].plain.items() if name not in newer}
    ranks = [{name: rank[name] for name in ("rank", "host", "train", "test", "rss_bytes")} for rank in plain["ranks"]]
    time = {name: plain["time"][name] for name in ("wall_s", "training_s", "parts")}
    text = _run(parse({**plain, "ranks": ranks, "time": time, "memory": {"rss_bytes": 2**20, "peak_bytes": None}}))
    assert "process memory: 1.00 MiB" in text and "wall" in text and "None" not in text


@pytest.mark.parametrize("width", [80, 100])
def test_a_run_fits_its_terminal(scaling: StudyRecord, width: int) -> None:
    console = _console(width)
    terminal.print_run(console, parse({**scaling.cells[3].records[0][1].plain, "run_dir": "runs/x"}))
    assert max(map(len, _text(console).splitlines())) <= width


def test_a_failed_run_says_why(scaling: StudyRecord) -> None:
    console = _console()
    terminal.print_run(console, scaling.cells[4].records[0][1])
    assert "task: out of memory: <b>4 GiB</b> asked & refused" in _text(console)


def test_a_refused_run_has_only_its_reason() -> None:
    console = _console()
    terminal.print_run(console, refusal({"task": "t", "on": "1x1", "seed": 1}, "fp8 needs a GPU"))
    assert "refused: fp8 needs a GPU" in _text(console)


def test_a_narrow_terminal_loses_nothing(found: SpokenStudy) -> None:
    console = _console(80)
    terminal.print_study(console, found)
    assert max(map(len, _text(console).splitlines())) <= 80
