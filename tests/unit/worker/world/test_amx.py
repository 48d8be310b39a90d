"""A matrix unit that is announced and does not work: a child finds out, and oneDNN is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from paceline.worker.world import amx

VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One that announces it, with nothing limited yet."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nflags : fpu avx512f amx_bf16 amx_tile amx_int8\n")
    monkeypatch.setattr(amx, "_CPUS", file)
    return file


def dies(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGILL)


def test_a_product_that_dies_is_seen_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx.torch.nn.functional, "linear", dies)
    assert amx.avoid_broken_amx() == amx.NEXT_BEST == os.environ["ONEDNN_MAX_CPU_ISA"]


def test_where_it_works_nothing_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx.torch.nn.functional, "linear", lambda *_: None)
    assert amx.avoid_broken_amx() is None


def test_an_error_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for the run to meet, with its own words."""
    monkeypatch.setattr(amx.torch.nn.functional, "linear", lambda *_: 1 / 0)
    assert amx.avoid_broken_amx() is None


@pytest.mark.parametrize("name", VARIABLES)
def test_what_the_user_has_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx.torch.nn.functional, "linear", dies)
    monkeypatch.setenv(name, "AVX2")
    assert amx.avoid_broken_amx() == "AVX2"


def test_a_processor_without_it_is_not_tried(monkeypatch: pytest.MonkeyPatch, processor: Path) -> None:
    monkeypatch.setattr(amx.torch.nn.functional, "linear", dies)
    processor.write_text("flags : fpu avx2\n")
    assert amx.avoid_broken_amx() is None
    processor.unlink()
    assert amx.avoid_broken_amx() is None
