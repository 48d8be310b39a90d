"""A box on paper: its shape, its slurm.conf, and what is said when the machine cannot carry it. Nothing is made here."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from paceline.base.errors import BadInput
from paceline.cluster import needs
from paceline.cluster.box import Box, described, from_plain, parse_delay, parse_rate, rate_text
from paceline.cluster.network import burst_bytes
from paceline.cluster.slurmconf import render

TWO = Box(machines=2, cores=2, host_cores=(0, 1, 2, 3), memory_mb=8000)


def asked(**changed: Any) -> Box:
    words: dict[str, Any] = {
        "machines": 2,
        "cores": 1,
        "link": None,
        "delay": None,
        "host_cores": [0, 1],
        "memory_mb": 800,
    }
    return described(**{**words, **changed})


# ---- shape ----


def test_each_machine_has_a_name_an_address_and_cores_of_its_own() -> None:
    assert [(m.name, m.address, m.cores) for m in TWO.members] == [
        ("node0", "198.18.77.1", (0, 1)),
        ("node1", "198.18.77.2", (2, 3)),
    ]
    assert not TWO.shares_cores


def test_cores_are_taken_in_turn_and_shared_when_there_are_no_more() -> None:
    box = Box(machines=3, cores=2, host_cores=(4, 5, 9))
    assert [machine.cores for machine in box.members] == [(4, 5), (4, 9), (5, 9)]
    assert box.shares_cores


def test_two_boxes_are_one_when_their_shape_is() -> None:
    assert dataclasses.replace(TWO, memory_mb=1, host_cores=(7,)) == TWO
    assert dataclasses.replace(TWO, link_bps=10**8) != TWO


def test_a_box_outlives_being_written_down() -> None:
    box = asked(link="2.5gbit", delay="250us")
    again = from_plain(json.loads(json.dumps(box.plain())))
    assert again == box and again.host_cores == box.host_cores and again.memory_mb == box.memory_mb
    assert again.shape == "--machines 2 --cores 1 --link 2.5gbit --delay 250us"


def test_the_hosts_file_names_everybody_by_a_real_address() -> None:
    assert TWO.hosts().splitlines() == [
        "127.0.0.1 localhost",
        "::1 localhost ip6-localhost ip6-loopback",
        "198.18.77.254 head",
        "198.18.77.1 node0",
        "198.18.77.2 node1",
    ]


def test_the_largest_box_has_room_on_its_network() -> None:
    addresses = {machine.address for machine in Box(machines=16, cores=1).members}
    assert len(addresses) == 16 and not addresses & {"198.18.77.253", "198.18.77.254"}


# ---- words ----


@pytest.mark.parametrize(
    ("text", "bps"), [("100mbit", 10**8), ("1Gbit", 10**9), (" 2.5 gbit ", 25 * 10**8), ("1500kbit", 15 * 10**5)]
)
def test_rates(text: str, bps: int) -> None:
    assert parse_rate(text) == bps
    assert parse_rate(rate_text(bps)) == bps


@pytest.mark.parametrize("text", ["100mbps", "100", "fast", "", "-1mbit", "1e3mbit", "100 mbit/s", "nanmbit"])
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match=r"--link .*not a speed.*kbit, mbit or gbit.*--link 100mbit"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["999kbit", "101gbit"])
def test_rates_that_would_mean_nothing(text: str) -> None:
    with pytest.raises(BadInput, match="from 1mbit to 100gbit"):
        parse_rate(text)


def test_delays() -> None:
    assert (parse_delay("5ms"), parse_delay("250us"), parse_delay("0.1s"), parse_delay("0ms")) == (
        5000,
        250,
        100_000,
        None,
    )
    for text in ("5", "5 minutes", "ms"):
        with pytest.raises(BadInput, match="not a time"):
            parse_delay(text)
    with pytest.raises(BadInput, match="at most 500ms"):
        parse_delay("1s")


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        asked(machines=17, cores=3, link="100mbps", delay="5")
    first, *_ = problems = caught.value.problems
    assert len(problems) == 4 and "1 to 16 machines" in first
    assert "--cores 3: this machine has 2" in problems[1]


def test_a_burst_lasts_a_millisecond_and_holds_a_packet() -> None:
    assert burst_bytes(10**9) == 125_000
    assert burst_bytes(10**6) == 4096


# ---- slurm.conf ----


def test_slurm_conf() -> None:
    lines = [line for line in render(TWO).splitlines() if not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines if not line.startswith(("NodeName", "PartitionName")))
    assert settings["SlurmctldHost"] == "head(198.18.77.254)"
    assert settings["AuthInfo"] == "socket=/run/paceline/cluster/munge/socket"
    assert settings["TmpFS"] == "/run/paceline/cluster/tmp-%n"
    assert settings["DefMemPerCPU"] == "1000"
    assert settings["KillWait"] == "3" and settings["InactiveLimit"] == "0" and settings["MinJobAge"] == "600"
    # Nothing lies outside the folder: whatever is a path begins with it.
    assert all(value.startswith("/run/paceline/cluster/") for value in settings.values() if value.startswith("/run"))
    assert [line for line in lines if line.startswith(("NodeName", "PartitionName"))] == [
        "NodeName=node0 NodeAddr=198.18.77.1 CPUs=2 RealMemory=4000 State=UNKNOWN",
        "NodeName=node1 NodeAddr=198.18.77.2 CPUs=2 RealMemory=4000 State=UNKNOWN",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF",
        "PartitionName=low Nodes=ALL Default=NO MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL",
    ]


def test_a_tiny_machine_still_gives_every_job_some_memory() -> None:
    assert "DefMemPerCPU=1\n" not in render(Box(machines=16, cores=1, memory_mb=100))
    assert "DefMemPerCPU=0\n" not in render(Box(machines=16, cores=64, memory_mb=100))


# ---- what is missing ----

GOOD = needs.Host("linux", root=True, programs=frozenset(needs.PROGRAMS))


def test_a_machine_that_has_everything() -> None:
    assert needs.missing(GOOD) == []


def test_another_system_needs_no_further_words() -> None:
    (sentence,) = needs.missing(needs.Host("darwin", root=False, programs=frozenset()))
    assert "Linux network namespaces" in sentence and "darwin" in sentence


def test_everything_missing_is_said_at_once() -> None:
    host = needs.Host("linux", root=False, programs=frozenset(needs.PROGRAMS) - {"slurmd", "slurmctld", "munged"})
    root, programs = needs.missing(host)
    assert "needs root" in root and "sudo paceline cluster" in root
    assert programs.startswith("munged, slurmctld, slurmd: not installed")
    assert programs.endswith("apt-get install -y --no-install-recommends munge slurmctld slurmd")


def test_the_kernel_is_quoted() -> None:
    host = dataclasses.replace(
        GOOD,
        lacking={
            "links with a delay (netem, CONFIG_NET_SCH_NETEM)": "Error: Specified qdisc kind is unknown",
            "network namespaces": "unshare failed: Operation not permitted",
        },
    )
    delay, spaces = needs.missing(host)
    assert "Specified qdisc kind is unknown; leave --delay out" in delay
    assert "Operation not permitted; in a container it needs --privileged" in spaces


def test_a_network_in_use_is_not_taken_away() -> None:
    (sentence,) = needs.missing(dataclasses.replace(GOOD, taken=("198.18.0.0/15 on tun0",)))
    assert "198.18.77.0/24" in sentence and "198.18.0.0/15 on tun0" in sentence
