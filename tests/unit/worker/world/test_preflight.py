"""What machines compare before a run, with the sentences a user gets; and names and ports, on this machine alone."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.world import reach
from paceline.worker.world.preflight import Report, agree, allocated

HEAD = Report(0, "node0", "3.11.7", "2.13.0", "0.1.0", 100.0, "s", True)
OTHER = replace(HEAD, machine=1, host="node1")


def said(*others: tuple[Report, float], machines: int = 2) -> list[str]:
    return agree(HEAD, others, num_machines=machines, waited_s=15, port=4000)


def test_machines_that_are_alike_agree() -> None:
    assert said((OTHER, 101.0)) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(OTHER, torch="2.12.1"), "node1 (machine 1) has torch 2.12.1, and node0 has 2.13.0"),
        (replace(OTHER, python="3.12.0"), "node1 (machine 1) has python 3.12.0"),
        (replace(OTHER, secret=None), "node1 (machine 1) does not see the run directory of node0"),
        (replace(OTHER, writable=False), "node1 (machine 1) cannot write into the run directory"),
        (replace(OTHER, clock=60.0), "the clocks of node1 and node0 differ by 40.0 s"),
    ],
)
def test_each_difference_has_its_sentence(other: Report, words: str) -> None:
    found = said((other, 100.0))
    assert len(found) == 1 and found[0].startswith(words), found


def test_a_machine_that_never_came_is_named() -> None:
    assert said((OTHER, 100.0), machines=3)[0].startswith("machine 2 did not report to node0 (port 4000) within 15 s")


def test_slurm_gave_what_was_asked() -> None:
    spec = Spec(task="features", on="2x4")
    assert allocated(spec, {}) == [], "outside Slurm there is nothing to compare"
    assert allocated(spec, {"machines": 2, "processes": 4}) == []
    assert allocated(spec, {"machines": 1, "processes": 4}) == [
        "asked Slurm for 2 machines (on=2x4), and the job has 1"
    ]
    assert allocated(spec, {"machines": 2, "processes": 1}) == [
        "asked Slurm for 4 processes per machine (on=2x4), and the job has 1"
    ]


def test_an_unknown_head_is_a_sentence() -> None:
    with pytest.raises(RunFailed, match=r"cannot resolve the head machine's name 'no-such-host\.invalid'"):
        reach.resolve("no-such-host.invalid", seconds=20)


def test_a_head_that_is_loopback_is_refused() -> None:
    with pytest.raises(RunFailed, match="other machines cannot reach a loopback address"):
        reach.listen("localhost", 0)


def test_a_head_that_is_another_machine_is_refused() -> None:
    with pytest.raises(RunFailed, match="not an address of"):
        reach.listen("192.0.2.1", 4000)  # an address kept for documentation: nobody has it


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RunFailed, match="is taken: give another port="),
    ):
        reach.listen("localhost", taken.getsockname()[1])


def test_nobody_at_the_head_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RunFailed, match=f"cannot reach the head machine localhost .*port {port}.* within 0.3 s"):
        reach.connect("localhost", port, seconds=0.3)
