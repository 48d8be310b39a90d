"""A profile in words, tables and a page; its figures made by hand."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paceline.records.profile import Frame
from paceline.records.record import Record, parse
from paceline.records.section import Place
from paceline.report import flame, profile_page
from paceline.report.profile import ProfileTables
from paceline.report.terminal import print_profile

EVIL = "</script><script>alert(1)</script>"


def account(**figures: float) -> dict[str, Any]:
    names = ("forward_s", "own_forward_s", "backward_s", "own_backward_s", "device_s", "own_device_s", "bytes")
    return {"calls": 2, **dict.fromkeys(names, 0), **figures}


def frame(name: str, total_s: float, *children: dict[str, Any]) -> Frame:
    return Frame.read(leaf(name, total_s, *children), Place("made by hand"))


def leaf(name: str, total_s: float, *children: dict[str, Any], kind: str = "operator") -> dict[str, Any]:
    return {"name": name, "kind": kind, "calls": 2, "total_s": total_s, "children": list(children)}


def record(tmp_path: Path, *, device: str = "cpu", name: str = "layer", slowed: float = 2.0) -> Record:
    layer = account(forward_s=3.0, own_forward_s=3.0, backward_s=1.0, own_backward_s=1.0, own_device_s=0.75, bytes=2048)
    found = {
        "pass": "training", "num_batches": 2, "batch": 32, "device": device, "traced_s": 4.0, "slowed": slowed,
        "clean": {"parts": {"data": 0.5, "forward": 1.5}, "total_s": 2.0, "data_share": 0.25, "model_share": 0.75},
        "modules": [
            {"name": "(model)", "type": "Net", **account(forward_s=4.0, own_forward_s=1.0, backward_s=1.0)},
            {"name": name, "type": "Linear", **layer},
        ],
        "types": {"Linear": layer}, "model": {"forward_s": 4.0, "backward_s": 4.0, "device_s": 1.0},
        "outside": {"forward_s": 0.0, "backward_s": 3.0}, "explained": 1.0, "trace": "traces/rank_00000.json.gz",
        "operators": [
            {"name": f"op{i}", "calls": 1, "self_s": 40.0 - i, "backward_s": 0.0, "total_s": 40.0, "device_s": 0, "self_bytes": -i}
            for i in range(40)
        ],
        "tree": leaf("training", 10.0, leaf(name, 6.0, leaf("aten::mm", 4.0), leaf("aten::t", 1.0), kind="module"), kind="phase"),
    }  # fmt: skip
    spec = {"task": "toy.py", "on": "1x1", "seed": 1, "profile": "training", "params": {"note": EVIL}}
    return parse(
        {"outcome": "completed", "spec": spec, "run_dir": str(tmp_path), "profile": found, "fingerprint": None}
    )


def printed(made: Record) -> str:
    console = Console(file=io.StringIO(), width=160)
    print_profile(console, made)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_the_shares_add_up(tmp_path: Path) -> None:
    table = ProfileTables(record(tmp_path)).modules()
    assert [column.title for column in table.columns] == [
        "module", "type", "calls", "forward", "backward", "share", "memory",
    ]  # fmt: skip
    assert [row[:1] + row[-2:] for row in table.rows] == [
        ("(model)", "12 %", "-"),
        ("layer", "50 %", "2.00 KiB"),
        ("(outside)", "38 %", "-"),
    ]


def test_on_a_gpu_kernels_decide_the_shares(tmp_path: Path) -> None:
    table = ProfileTables(record(tmp_path, device="cuda")).modules()
    assert "GPU" in [column.title for column in table.columns]
    assert [row[-2] for row in table.rows] == ["0 %", "75 %", "25 %"]


def test_the_terminal_has_the_first_and_the_page_all(tmp_path: Path) -> None:
    text = printed(record(tmp_path))
    assert "the first 15 of 40" in text and "op14" in text and "op15" not in text
    page = profile_page.render(record(tmp_path))
    assert "op39" in page and "the first 15" not in page


@pytest.mark.parametrize(("slowed", "words"), [(2.1, "made it 2.1x slower"), (0.8, "this machine's own unrest: 0.80x")])
def test_what_the_profiler_cost_is_said(slowed: float, words: str, tmp_path: Path) -> None:
    text = printed(record(tmp_path, slowed=slowed))
    assert words in text
    assert "batch assembly 25 %, model 75 % of 2.00 s (batch assembly 500 ms, forward 1.50 s)" in text


def test_frames_lie_below_what_calls_them() -> None:
    rows = {row["name"]: row for row in flame.frames(frame("a", 10.0, leaf("b", 6.0, leaf("c", 1.0)), leaf("d", 3.0)))}
    assert {name: (row["left"], row["right"], row["depth"]) for name, row in rows.items()} == {
        "a": (0, 10, 0), "b": (0, 6, 1), "c": (0, 1, 2), "d": (6, 9, 1),
    }  # fmt: skip
    assert rows["d"]["share"] == 0.3
    assert next(flame.frames(frame("nothing", 0.0)))["share"] == 0.0


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    page = profile_page.render(record(tmp_path, name=EVIL))
    assert "<script>alert" not in page
    specs = re.search(r'<script type="application/json" id="chart-specs">(.*?)</script>', page, re.S)
    assert specs is not None
    assert EVIL in json.dumps(json.loads(specs[1])), "in the data, where it is text"
    head, _, rest = page.partition('<script type="module">')
    tail = rest.partition("</script>")[2]
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', head + tail) == [], "nothing is loaded from outside"
    assert len(page.encode()) < 1_500_000
