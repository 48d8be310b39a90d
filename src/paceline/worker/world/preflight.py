"""Before the ranks: every machine finds the head over the network and they compare what must be the same. No torch is imported.

The first machine listens, the others report, it judges and tells them. One sentence says what is wrong, within seconds, where
a launcher would wait for minutes and then show a traceback.
"""

from __future__ import annotations

import contextlib
import json
import platform
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import read_json, remove_file, write_json
from paceline.records.fingerprint import version
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.worker.world.env import Meeting, allocation
from paceline.worker.world.reach import connect, listen

Clock = Callable[[], float]  # the time of day

CLOCK_S = 2.0  # seconds: events of all machines are ordered by their clocks
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Report:
    """What one machine says of itself."""

    machine: int
    host: str
    python: str
    torch: str | None
    paceline: str | None
    clock: float
    secret: str | None  # what the head wrote into the run directory, if this machine sees it
    writable: bool
    address: str = ""


def report(run: RunDir, meeting: Meeting, *, now: float) -> Report:
    return Report(
        machine=meeting.machine, host=socket.gethostname(), python=platform.python_version(), torch=version("torch"),
        paceline=version("paceline"), clock=now, secret=_secret(run), writable=_writable(run, meeting.machine),
    )  # fmt: skip


def _secret_path(run: RunDir) -> Path:
    return run.job("secret.json")


def _secret(run: RunDir) -> str | None:
    try:
        return read_json(_secret_path(run))["secret"]
    except (BadInput, OSError, KeyError, TypeError):
        return None


def _writable(run: RunDir, machine: int) -> bool:
    path = run.job(f"writable_{machine}.json")
    try:
        write_json(path, {})
        remove_file(path)
    except (RunFailed, OSError):
        return False
    return True


def agree(
    head: Report, others: Sequence[tuple[Report, float]], *, num_machines: int, waited_s: float, port: int
) -> list[str]:
    """What is wrong, as sentences; each other report comes with the head's clock when it arrived."""
    wrong: list[str] = []
    missing = sorted(set(range(1, num_machines)) - {other.machine for other, _ in others})
    if missing:
        names = ", ".join(f"machine {machine}" for machine in missing)
        wrong.append(
            f"{names} did not report to {head.host} (port {port}) within {waited_s:g} s: it is down, its link is cut, or a "
            "firewall is between them"
        )
    for other, arrived in others:
        who = f"{other.host} (machine {other.machine})"
        if other.secret != head.secret:
            wrong.append(
                f"{who} does not see the run directory of {head.host}: put --out on a disk that all machines share"
            )
        elif not other.writable:
            wrong.append(f"{who} cannot write into the run directory")
        for what in ("python", "torch", "paceline"):
            here, there = getattr(head, what), getattr(other, what)
            if here != there:
                wrong.append(f"{who} has {what} {there}, and {head.host} has {here}: install the same on all machines")
        if abs(arrived - other.clock) > CLOCK_S:
            wrong.append(
                f"the clocks of {other.host} and {head.host} differ by {abs(arrived - other.clock):.1f} s, more than {CLOCK_S:g} s: "
                "synchronise them (NTP)"
            )
    return wrong


def allocated(spec: Spec, given: Mapping[str, int]) -> list[str]:
    """Where Slurm gave something else than the script asked for (a plug-in or a site's default may change it)."""
    asked = {"machines": spec.topology.machines, "processes": spec.topology.processes}
    return [
        f"asked Slurm for {want} {word}{' per machine' * (word == 'processes')} (on={spec.on}), and the job has {given[word]}"
        for word, want in asked.items()
        if given.get(word, want) != want
    ]


def check(run: RunDir, meeting: Meeting, *, clock: Clock) -> None:
    """RunFailed with one sentence, on every machine that can be told; otherwise all is well."""
    if meeting.machine == 0:
        _lead(run, meeting, clock)
    else:
        _follow(run, meeting, clock)


def _spec(run: RunDir) -> Spec:
    return Spec.model_validate(read_json(run.spec))


def _lead(run: RunDir, meeting: Meeting, clock: Clock) -> None:
    spec = _spec(run)
    num = spec.topology.machines
    write_json(_secret_path(run), {"secret": secrets.token_hex(16)})
    wrong = allocated(spec, allocation())
    mine = report(run, meeting, now=clock())
    if num == 1:
        _conclude(run, wrong, [mine], meeting)
        return
    others: list[tuple[Report, float]] = []
    lines: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        server, address = listen(meeting.head, meeting.port)
        stack.enter_context(server)
        deadline = clock() + spec.meet_within
        while len(others) < num - 1 and (left := deadline - clock()) > 0:
            server.settimeout(left)
            try:
                line, peer = server.accept()
            except TimeoutError:
                break
            stack.enter_context(line)
            if (theirs := _hear(line, spec, peer[0], seconds=max(0.1, min(5.0, deadline - clock())))) is not None:
                others.append((theirs, clock()))
                lines.append(line)
        mine = replace(mine, address=address)
        wrong += agree(mine, others, num_machines=num, waited_s=spec.meet_within, port=meeting.port)
        for line in lines:
            with contextlib.suppress(OSError):
                line.sendall(json.dumps({"wrong": wrong}).encode() + b"\n")
                line.settimeout(2.0)
                line.recv(1)  # the other side hangs up first: a port whose owner hung up first stays taken for a minute
    _conclude(run, wrong, [mine, *(other for other, _ in others)], meeting)


def _conclude(run: RunDir, wrong: list[str], reports: list[Report], meeting: Meeting) -> None:
    remove_file(_secret_path(run))
    if wrong:
        raise RunFailed("; ".join(wrong), kind="launch")
    machines = [{k: v for k, v in asdict(report).items() if k not in ("secret", "writable")} for report in reports]
    write_json(run.machines, {"schema": 1, "head": meeting.head, "port": meeting.port, "machines": machines})


def _hear(line: socket.socket, spec: Spec, peer: str, *, seconds: float) -> Report | None:
    """A report; None from somebody who is not of this run (a port scanner, another run's machine)."""
    line.settimeout(seconds)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        said = json.loads(_line(line))
        if said["key"] == spec.key():
            return replace(Report(**said["report"]), address=peer)
    return None


def _line(line: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < _MOST_BYTES:
        piece = line.recv(4096)
        if not piece:
            break
        received += piece
    return bytes(received)


def _follow(run: RunDir, meeting: Meeting, clock: Clock) -> None:
    here = socket.gethostname()
    mine = report(run, meeting, now=0.0)  # before connecting: a slow disk must not look like a slow network
    with connect(meeting.head, meeting.port, seconds=meeting.within_s) as line:
        mine = replace(
            mine, secret=_secret(run), clock=clock()
        )  # read the clock last: the time before it would count as a difference of clocks
        said = {"key": meeting.key, "report": asdict(mine)}
        line.sendall(json.dumps(said).encode() + b"\n")
        line.settimeout(meeting.within_s + 2.0)
        try:
            verdict = json.loads(_line(line) or b"{}")
        except (OSError, ValueError):
            verdict = {}
    if "wrong" not in verdict:
        raise RunFailed(f"{meeting.head} did not answer {here} (machine {meeting.machine})", kind="peer")
    if verdict["wrong"]:
        raise RunFailed("; ".join(verdict["wrong"]), kind="launch")
