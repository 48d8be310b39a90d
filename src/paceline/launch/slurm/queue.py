"""Asking Slurm: submit, state, cancel, which machines are usable. Every answer is read here and nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from paceline.base.errors import RunFailed
from paceline.launch.command import Answer, ask
from paceline.records.outcome import Outcome, failed

BOX_CONF = Path("/run/paceline/cluster/slurm.conf")

# Words of `scontrol show job` and `sacct` for a job that will not run (any more).
OVER = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
        "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL",
    }
)  # fmt: skip
# Words of `sinfo` for a machine that takes no jobs.
_UNUSABLE = ("down", "drain", "drng", "fail", "unk", "maint", "inval", "no_respond", "*")


@dataclass(frozen=True, slots=True)
class State:
    """`word` is Slurm's own, upper case; GONE when nobody remembers the job any more."""

    word: str
    reason: str = ""
    hosts: str = ""

    @property
    def over(self) -> bool:
        return self.word in OVER or self.word == "GONE"

    @property
    def running(self) -> bool:
        return self.word in ("RUNNING", "COMPLETING", "SUSPENDED")


def cluster() -> dict[str, str]:
    """Which cluster, unless SLURM_CONF says so: the one in a box if it is up, else the machine's own."""
    return {"SLURM_CONF": str(BOX_CONF)} if BOX_CONF.exists() else {}


def _slurm(*argv: str) -> Answer:
    return ask(argv, unless_set=cluster())


def submit(script: Path, *, folder: Path, after: int | None = None) -> int:
    """The job's number; what sbatch refuses is a failed run with sbatch's own reason and what to do about it."""
    words = ["sbatch", "--parsable", f"--chdir={folder}"]
    if after is not None:
        words.append(f"--dependency=afterany:{after}")
    answer = _slurm(*words, str(script))
    match = re.match(r"(\d+)", answer.out.strip())
    if not answer.ok or match is None:
        raise RunFailed(refusal(answer.words), kind="launch")
    return int(match[1])


_ADVICE = (
    ("invalid partition", "see `sinfo` for the partitions there are, and give partition=NAME"),
    ("memory specification can not be satisfied", "no machine has that much memory: give a smaller mem="),
    ("node count specification invalid", "the partition has fewer machines than on= asks for"),
    ("more processors requested than permitted", "ask for fewer processes in on=, or a smaller cpus_per_task"),
    (
        "node configuration is not available",
        "no machine has what on=, mem=, cpus_per_task=, gres= and constraint= ask for together",
    ),
    ("invalid account", "give an account= that exists and that you may use"),
    ("invalid qos", "give a qos= that exists and that you may use"),
    ("time limit", "give a shorter time="),
    ("unable to contact slurm controller", "the controller does not answer: is the cluster up?"),
    (
        "failed to fetch config",
        "there is no Slurm cluster here: make one with `paceline cluster up`, or set SLURM_CONF",
    ),
    ("configuration source", "there is no Slurm cluster here: make one with `paceline cluster up`, or set SLURM_CONF"),
)


def refusal(words: str) -> str:
    said = re.sub(r"sbatch: (error|fatal): ", "", words)
    advice = next((what for sign, what in _ADVICE if sign in said.lower()), "see the words of sbatch")
    return f"sbatch refused the job ({said}): {advice}"


def state(job: int) -> State:
    """From the accounting; where there is none, from the controller, which forgets a job some minutes after its end."""
    answer = _slurm(
        "sacct", "--jobs", str(job), "--allocations", "--noheader", "--parsable2", "--format=State,NodeList"
    )
    fields = answer.out.strip().splitlines()[0].split("|") if answer.ok and answer.out.strip() else []
    if len(fields) == 2 and fields[0].split()[0] in OVER:
        return State(fields[0].split()[0], hosts=fields[1])
    # A job that is not over: only the controller says what it waits for.
    answer = _slurm("scontrol", "show", "job", "-o", str(job))
    if answer.ok and (match := re.search(r"\bJobState=(\S+)", answer.out)):
        reason = re.search(r"\bReason=(\S+)", answer.out)
        hosts = re.search(r"\bNodeList=(\S+)", answer.out)
        return State(match[1], _plain(reason), _plain(hosts))
    answer = _slurm("squeue", "--jobs", str(job), "--noheader", "--format=%T|%r|%N")
    if answer.ok and "|" in answer.out:
        word, reason, hosts = answer.out.strip().splitlines()[0].split("|")
        return State(word, reason, hosts)
    if "contact slurm controller" in answer.words.lower():
        return State("UNKNOWN", "the controller does not answer")
    return State("GONE")


def _plain(match: re.Match[str] | None) -> str:
    word = match[1] if match else ""
    return "" if word in ("None", "(null)") else word


def cancel(job: int) -> None:
    """Asks; a job that is over already is no error."""
    _slurm("scancel", str(job))


def usable(partition: str | None, *, cpus: int) -> tuple[int, list[str]]:
    """(machines with that many CPUs that take jobs, the names of those that take none) of a partition, or of the default one."""
    words = ["sinfo", "--Node", "--noheader", "--format=%N|%T|%P|%c"]
    answer = _slurm(*words, *([f"--partition={partition}"] if partition else []))
    rows = [line.split("|") for line in answer.out.splitlines() if line.count("|") == 3]
    if partition is None:
        rows = [row for row in rows if row[2].strip().endswith("*")]
    broken = [name for name, word, _, _ in rows if any(sign in word.lower() for sign in _UNUSABLE)]
    return sum(name not in broken and int(num) >= cpus for name, _, _, num in rows), broken


def outcome(state: State, job: int) -> Outcome | None:
    """What Slurm itself says of an end that was not the run's own doing."""
    match state.word:
        case "PREEMPTED":
            return failed("preempted", f"job {job} was preempted by Slurm for another job")
        case "TIMEOUT" | "DEADLINE":
            return failed("preempted", f"job {job} reached Slurm's time limit; give a longer time=")
        case "CANCELLED":
            return failed("killed", f"job {job} was cancelled (scancel) from outside")
        case "NODE_FAIL" | "BOOT_FAIL":
            return failed("lost", f"a machine of job {job} failed ({state.hosts or 'Slurm does not say which'})")
        case "OUT_OF_MEMORY":
            return failed("memory", f"job {job} needed more memory than it was given; give a larger mem=")
        case _:
            return None
