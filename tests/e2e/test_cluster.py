"""`paceline cluster` for real: machines with names, addresses and links of their own, a Slurm that runs jobs on them, and
nothing left of it, however it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from e2e.box import aside, needed
from paceline.cluster import machines, processes
from paceline.cluster.box import CONF

# alone: a link's speed is timed, and a machine can have one box.
pytestmark = [pytest.mark.alone, pytest.mark.timeout(120)]

COMMAND = [sys.executable, "-m", "paceline", "cluster"]
LINK_MBIT = 50
DAEMONS = {"munged", "slurmctld", "slurmscriptd", "slurmd", "slurmstepd"}
STEPS = ("network:", "munge:", "Slurm:", "waiting until")  # how `up` begins the lines that tell how far it is


def slowly(steps: Sequence[str]) -> list[Any]:
    """Steps between those that `make test` tries: `make soak` goes through all of them."""
    return [pytest.param(step, marks=pytest.mark.slow) for step in steps]


def cluster(*words: str, expect: int = 0, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **(env or {})}
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def status() -> dict[str, Any]:
    return json.loads(cluster("status", "--json").stdout)


def slurm(*words: str) -> str:
    env = {**os.environ, "SLURM_CONF": str(CONF)}
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=env).stdout


def on(name: str, *words: str) -> str:
    argv = [*machines.enter(name), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def until(what: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def traces() -> dict[str, set[str]]:
    """Everything a box could leave behind on this machine."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    running: set[str] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() in DAEMONS and process.status() != psutil.STATUS_ZOMBIE:
                running.add(f"{process.pid} {process.name()}")
    return {
        "links": {line.split(": ")[1] for line in links.splitlines()},
        "namespaces": set(spaces.splitlines()),
        "mounts": set(Path("/proc/self/mounts").read_text().splitlines()),
        "processes": running | {str(process.pid) for process in processes.in_box()},
        "files": {str(path) for folder in ("/run", "/run/paceline") for path in Path(folder).glob("*")},
    }


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    needed()
    with aside():
        yield


@pytest.fixture
def clean() -> Iterator[None]:
    """A test that begins and ends without a box: what it leaves behind is its own."""
    cluster("down")
    before = traces()
    yield
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        cluster("down")
    assert traces() == before


@pytest.fixture(scope="module")
def two(alone: None) -> dict[str, Any]:
    """Two machines of one core each, on slow links; down again when the next test wants none, or the file is over."""
    return json.loads(cluster("up", "--machines", "2", "--cores", "1", "--link", f"{LINK_MBIT}mbit", "--json").stdout)


# ---- a cluster that is up ----


def test_what_up_says(two: dict[str, Any]) -> None:
    assert two["state"] == "up" and two["started"] and two["link"] == "50mbit" and two["conf"] == str(CONF)
    assert [(m["name"], m["address"], m["cores"], m["slurm"], m["cut"]) for m in two["machines"]] == [
        ("node0", "198.18.77.1", 1, "idle", False),
        ("node1", "198.18.77.2", 1, "idle", False),
    ]


def test_each_is_a_machine_of_its_own(two: dict[str, Any]) -> None:
    for index, other in ((0, 1), (1, 0)):
        name = f"node{index}"
        assert on(name, "hostname") == name
        assert on(name, "nproc") == "1"
        assert json.loads(on(name, "ip", "-json", "-4", "address", "show", "eth0"))[0]["addr_info"][0]["local"] == (
            f"198.18.77.{index + 1}"
        )
        assert on(name, "getent", "hosts", f"node{other}").split() == [f"198.18.77.{other + 1}", f"node{other}"]
        assert on(name, "cat", "/etc/resolv.conf") == ""
    # What is one machine's memory is not the other's.
    on("node0", "touch", "/dev/shm/paceline-test")
    assert on("node1", "ls", "/dev/shm") == "" and not Path("/dev/shm/paceline-test").exists()


def test_an_unknown_name_fails_at_once(two: dict[str, Any]) -> None:
    began = time.monotonic()
    with pytest.raises(subprocess.CalledProcessError):
        on("node0", "getent", "hosts", "no-such-host.example")
    assert time.monotonic() - began < 2


def test_slurm_runs_a_job_on_both(two: dict[str, Any], tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nhostname\nsrun --nodes=2 --ntasks=2 hostname\n")
    log = tmp_path / "job.out"
    slurm("sbatch", "--nodes=2", f"--output={log}", "--wait", str(script))
    first, *rest = log.read_text().split()
    assert first == "node0" and sorted(rest) == ["node0", "node1"]


def test_up_again_says_so_and_another_shape_is_refused(two: dict[str, Any]) -> None:
    words = ("up", "--machines", "2", "--cores", "1", "--link", f"{LINK_MBIT}mbit")
    assert "is up already" in cluster(*words).stdout
    refused = cluster("up", "--machines", "3", expect=2).stderr
    assert "another shape" in refused and "paceline cluster down" in refused
    assert status()["state"] == "up"


SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 5001), timeout=20) as link:
    link.sendall(b"x" * int(sys.argv[2]))
"""
RECEIVE = """
import socket, time
with socket.create_server(("", 5001)) as server:
    print("ready", flush=True)
    link, _ = server.accept()
    received, began = len(link.recv(1 << 16)), time.monotonic()
    while some := link.recv(1 << 16):
        received += len(some)
    print(8 * received / (time.monotonic() - began))
"""


@pytest.mark.parametrize(("sender", "receiver"), [("node0", "node1"), ("node1", "node0")])
def test_a_link_has_the_speed_that_was_asked_for(two: dict[str, Any], sender: str, receiver: str) -> None:
    listening = [*machines.enter(receiver), sys.executable, "-c", RECEIVE]
    with subprocess.Popen(listening, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        on(sender, sys.executable, "-c", SEND, receiver, str(4 * 10**6))
        bps = float(process.stdout.readline())
    assert LINK_MBIT / 2 < bps / 10**6 < LINK_MBIT * 2


REACH = "import socket; socket.create_connection(('node1', 6818), timeout=1).close()"  # slurmd listens there


def test_cut_and_mend(two: dict[str, Any]) -> None:
    on("node0", sys.executable, "-c", REACH)
    assert "mend node1" in cluster("cut", "node1").stdout
    assert [machine["cut"] for machine in status()["machines"]] == [False, True]
    with pytest.raises(subprocess.CalledProcessError):
        on("node0", sys.executable, "-c", REACH)
    cluster("mend", "node1")
    on("node0", sys.executable, "-c", REACH)
    until(lambda: [machine["slurm"] for machine in status()["machines"]] == ["idle", "idle"])


def test_a_machine_that_was_down_is_back_soon(two: dict[str, Any]) -> None:
    """By itself Slurm takes up to two minutes; `mend` has its slurmd report."""
    slurm("scontrol", "update", "nodename=node1", "state=down", "reason=Not responding")
    cluster("mend", "node1")
    until(lambda: [machine["slurm"] for machine in status()["machines"]] == ["idle", "idle"], 10)


def test_a_command_on_a_machine_is_as_if_typed_there(two: dict[str, Any], tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "on", "node1", "--", "sh", "-c", "read word; echo $word on $(hostname) in $PWD; exit 7"],
        input="hello\n", capture_output=True, text=True, timeout=30, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (7, f"hello on node1 in {tmp_path}\n", "")
    assert cluster("on", "node1", "sinfo", "-h", "-o", "%D", "-p", "main").stdout.strip() == "2"


def test_whoever_is_inside_cannot_take_it_down(two: dict[str, Any]) -> None:
    assert "leave it first" in cluster("on", "node0", "--", *COMMAND, "down", expect=2).stderr
    assert "leave it first" in cluster("on", "node0", "--", *COMMAND, "up", expect=2).stderr


@pytest.mark.parametrize("words", [("cut", "node7"), ("mend", "node7"), ("on", "node7", "--", "hostname")])
def test_an_unknown_machine(two: dict[str, Any], words: tuple[str, ...]) -> None:
    assert "unknown machine 'node7'" in cluster(*words, expect=2).stderr


# ---- what cannot be ----


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--machines", "17"), "1 to 16 machines"),
        (("--machines", "0"), "1 to 16 machines"),
        (("--cores", "100000"), "a machine in the box cannot have more than the real one"),
        (("--link", "100mbps"), "not a speed"),
        (("--delay", "5"), "not a time"),
    ],
)
def test_bad_input(words: tuple[str, ...], says: str) -> None:
    assert says in cluster("up", *words, expect=2).stderr


@pytest.mark.parametrize("words", [("cut", "node0"), ("on", "node0", "--", "hostname")])
def test_without_a_cluster(clean: None, words: tuple[str, ...]) -> None:
    assert "no cluster is up" in cluster(*words, expect=2).stderr
    assert "no cluster is up" in cluster("status").stdout


# ---- ends ----


def test_down_ends_jobs_and_leaves_nothing(clean: None, tmp_path: Path) -> None:
    before = traces()
    cluster("up", "--machines", "2", "--cores", "1")
    script, log = tmp_path / "job.sh", tmp_path / "job.out"
    # A job that does not listen, with a grandchild that has left its session.
    script.write_text("#!/bin/sh\ntrap '' TERM HUP\nsetsid sleep 1000 &\necho started\nsrun sleep 1000\n")
    slurm("sbatch", "--nodes=2", f"--output={log}", str(script))
    until(lambda: log.exists() and "started" in log.read_text())
    assert [job["state"] for job in status()["jobs"]] == ["RUNNING"]
    assert "nothing of it is left" in cluster("down").stdout
    assert traces() == before
    assert "no cluster was up" in cluster("down").stdout
    assert traces() == before


def start_until(step: str) -> subprocess.Popen[str]:
    """`up` in a process group of its own, as a terminal has it, stopped in time at the step that begins with these words."""
    process = subprocess.Popen(
        [*COMMAND, "up"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(step):
            return process
    raise AssertionError(f"it never came to {step}")


def ended_at(step: str, word: signal.Signals) -> tuple[int, str]:
    """How `up` ended that got a signal at this step; on a busy machine it may have been done before, and is started again."""
    for _ in range(5):
        with start_until(step) as process:
            os.killpg(process.pid, word)
            _, said = process.communicate(timeout=30)
        if process.returncode != 0:
            return process.returncode, said
        cluster("down")
    raise AssertionError(f"`up` was always done before it was stopped at {step}")


@pytest.mark.parametrize("step", ["network:", *slowly(STEPS[1:3]), "waiting until"])
def test_killed_half_way(clean: None, step: str) -> None:
    ended_at(step, signal.SIGKILL)
    assert status()["state"] == "stale"
    assert "cleaning up what an earlier start left" in cluster("up").stderr
    assert status()["state"] == "up" and "2" in slurm("sinfo", "-h", "-o", "%D")


@pytest.mark.parametrize("word", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [*slowly(("network:", "munge:", "waiting until")), "Slurm:"])
def test_interrupted_half_way(clean: None, step: str, word: signal.Signals) -> None:
    before = traces()
    code, said = ended_at(step, word)
    assert code == 130 and "Traceback" not in said
    assert traces() == before


@pytest.mark.parametrize(
    ("name", "does", "says"),
    [
        (
            "slurmd",
            "echo 'slurmd: fatal: no luck' >&2; exit 1",
            "slurmd of node0 did not start: slurmd: fatal: no luck",
        ),
        ("slurmctld", "exit 0", "slurmctld has left no pid"),
    ],
)
def test_a_daemon_that_does_not_start(clean: None, tmp_path: Path, name: str, does: str, says: str) -> None:
    before = traces()
    fake = tmp_path / name
    fake.write_text(f"#!/bin/sh\n{does}\n")
    fake.chmod(0o755)
    assert says in cluster("up", expect=1, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}).stderr
    assert traces() == before


def test_a_daemon_that_ended_is_noticed(clean: None) -> None:
    cluster("up")
    slurmd = int((CONF.parent / "slurmd-node1.pid").read_text())
    os.kill(slurmd, signal.SIGKILL)
    until(lambda: status()["state"] == "stale")
    assert status()["lost"] == ["node1"]
    assert "not alive (ended: node1)" in cluster("cut", "node0", expect=2).stderr
    cluster("up")
    assert status()["state"] == "up"


def test_one_at_a_time(clean: None) -> None:
    with start_until("network:") as process:
        process.send_signal(signal.SIGSTOP)
        try:
            assert "is at work on this machine" in cluster("down", expect=2).stderr
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.stderr is not None
        process.stderr.read()
    assert process.returncode == 0 and status()["state"] == "up"
