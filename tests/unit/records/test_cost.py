"""From the ranks' counters to one figure, and from a price to what a run cost: plain sums, and never a part called the whole."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.records.cost import GPU, PACKAGE, PLATFORM, cost, energy
from paceline.spec.run import Spec


def row(*why: str, machine: str | None = None, **joules: float | None) -> dict[str, Any]:
    names = {"gpu": GPU, "package": PACKAGE, "platform": PLATFORM}
    named = {names[word]: value for word, value in joules.items()}
    return {"joules": named, "why": list(why), **({"machine": machine} if machine else {})}


def test_two_machines_of_two_ranks_on_cpus() -> None:
    found = energy([row(package=30.0, machine="a"), row(), row(package=12.0, machine="b"), row()], 7)
    assert found.plain == {"joules": 42.0, "joules_per_sample": 6.0, "sources": [PACKAGE], "why": None}


def test_one_machine_with_two_names_counts_once() -> None:
    """Two machines of a cluster in a box read the same counter."""
    found = energy([row(package=30.0, machine="a"), row(package=31.0, machine="a")], 1)
    assert found["joules"] == 31.0


def test_gpus_and_packages_are_different_devices() -> None:
    found = energy([row(gpu=100.0, package=30.0), row(gpu=50.0)], 18)
    assert (found["joules"], found["joules_per_sample"]) == (180.0, 10.0)
    assert found["sources"] == [GPU, PACKAGE] and found["why"] is None


def test_boards_and_packages_of_different_machines() -> None:
    found = energy([row(platform=30.0, machine="a"), row(package=12.0, machine="b")], 1)
    assert found["joules"] == 42.0 and set(found["sources"]) == {PACKAGE, PLATFORM}


def test_gpus_without_their_machines_are_said_to_be_that() -> None:
    found = energy([row("no RAPL", gpu=100.0, package=None), row(gpu=50.0)], 15)
    assert (found["joules"], found["joules_per_sample"], found["sources"]) == (150.0, 10.0, [GPU])
    assert found["why"] == "the machines' own processors are not in it: no RAPL"


def test_packages_of_some_machines_are_left_out() -> None:
    rows = [row(gpu=100.0, package=30.0, machine="a"), row("no RAPL", gpu=50.0, package=None, machine="b")]
    found = energy(rows, 15)
    assert found["joules"] == 150.0 and found["sources"] == [GPU]
    assert found["why"].endswith("not in it: rank 1: no RAPL")


@pytest.mark.parametrize(
    "rows",
    [
        [row(gpu=100.0, package=30.0), row("no counter", gpu=None)],
        [row(package=30.0, machine="a"), row("no counter", package=None, machine="b")],
    ],
)
def test_a_part_is_not_the_whole(rows: list[dict[str, Any]]) -> None:
    found = energy(rows, 10)
    assert (found["joules"], found["joules_per_sample"], found["sources"]) == (None, None, [])
    assert "a part is not the whole: rank 1: no counter" in found["why"]


def test_a_machine_in_the_cloud_has_none() -> None:
    found = energy([row("no RAPL", package=None), row()], 10)
    assert found.plain == {
        "joules": None,
        "joules_per_sample": None,
        "sources": [],
        "why": "no energy counter: no RAPL",
    }


def test_a_reason_is_said_once() -> None:
    found = energy([row("no NVML", "no RAPL", gpu=None, package=None), row("no NVML", gpu=None)], 10)
    assert found["why"] == "no energy counter: no NVML; no RAPL"


def test_a_rank_that_did_not_finish_leaves_no_figure() -> None:
    found = energy([row(gpu=100.0, package=1.0), {}], 10)
    assert found["joules"] is None and "rank 1 left no reading" in found["why"]


def test_no_samples_no_share() -> None:
    found = energy([row(package=4.0)], 0)
    assert (found["joules"], found["joules_per_sample"]) == (4.0, None)


def spec(**more: Any) -> Spec:
    return Spec(task="features", threads=1, weight_decay=0.0, **more)


def test_no_price_no_cost() -> None:
    assert cost(spec(device="cpu"), 3600) is None


@pytest.mark.parametrize(("device", "hours"), [("cpu", 2.0), ("cuda", 8.0)])
def test_a_device_is_what_is_rented(device: str, hours: float) -> None:
    """On CPUs a machine, however many ranks it has; on GPUs one a rank."""
    found = cost(spec(device=device, on="2x4", price=1.5), 3600)
    assert found is not None and found.plain == {"device_hours": hours, "price": 1.5, "total": hours * 1.5}


def test_what_costs_nothing_costs_nothing() -> None:
    found = cost(spec(device="cpu", price=0), 1800)
    assert found is not None and found.plain == {"device_hours": 0.5, "price": 0.0, "total": 0.0}
