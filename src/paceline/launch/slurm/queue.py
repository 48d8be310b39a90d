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
# Words of `sinfo` for a machine that is broken; one that drains, reboots or is reserved comes back, and is waited for.
_BROKEN = ("down", "fail", "unk", "inval", "no_respond", "*")


@dataclass(frozen=True, slots=True)
class State:
    """`word` is Slurm's own, upper case; GONE when nobody remembers the job any more."""

    word: str
    reason: str = ""
    hosts: str = ""
    partition: str = ""

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
    """Asks Slurm. Where it is missing or does not answer, the answer has exit code 127."""
    try:
        return ask(argv, unless_set=cluster(), without="SBATCH_")
    except RunFailed as error:
        return Answer(127, "", error.why)


def submit(script: Path, *, log: Path, after: int | None = None) -> int:
    """The job's number; what sbatch refuses is a failed run with sbatch's own reason and what to do about it."""
    # Not in the script: there a quote or a newline in the name of a folder would be more than a name.
    words = ["sbatch", "--parsable", f"--output={str(log).replace('%', '%%')}"]
    if after is not None:
        words.append(f"--dependency=afterany:{after}")
    answer = _slurm(*words, str(script))
    match = re.match(r"(\d+)", answer.out.strip())
    if not answer.ok or match is None:
        raise RunFailed(refusal(answer.words), kind="queue" if _passing(answer.words) else "launch")
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


def _passing(words: str) -> bool:
    """Slurm cannot be reached now, or takes no more jobs now: that is no refusal, and can be tried again."""
    return any(
        sign in words.lower()
        for sign in ("contact slurm", "timed out", "did not answer", "munge", "job submit limit", "maxsubmit")
    )


def refusal(words: str) -> str:
    said = re.sub(r"sbatch: (error|fatal): ", "", words)
    advice = next((what for sign, what in _ADVICE if sign in said.lower()), "see the words of sbatch")
    return f"sbatch refused the job ({said}): {advice}"


def state(job: int) -> State:
    """From the accounting. Where there is none, from the controller, which forgets a job some minutes after its end."""
    answer = _slurm(
        "sacct", "--jobs", str(job), "--allocations", "--noheader", "--parsable2", "--format=State,NodeList"
    )
    fields = answer.out.strip().splitlines()[0].split("|") if answer.ok and answer.out.strip() else []
    booked = State(fields[0].split()[0], hosts=fields[1]) if len(fields) == 2 and fields[0] else None
    if booked is not None and booked.word in OVER:
        return booked
    # A job that is not over: only the controller says what it waits for.
    answer = _slurm("scontrol", "show", "job", "-o", str(job))
    if answer.ok and (fields := dict(re.findall(r"\b(JobState|Reason|NodeList|Partition)=(\S+)", answer.out))).get(
        "JobState"
    ):
        plain = {name: "" if word in ("None", "(null)") else word for name, word in fields.items()}
        return State(plain["JobState"], plain.get("Reason", ""), plain.get("NodeList", ""), plain.get("Partition", ""))
    if booked is not None:
        return booked
    shown = _slurm("squeue", "--jobs", str(job), "--noheader", "--format=%T|%r|%N|%P")
    if shown.ok and shown.out.count("|") == 3:
        return State(*shown.out.strip().split("|"))
    # Forgotten is one thing, not answering another: a controller that is busy must not cost anybody a running job.
    return State("GONE") if "invalid job id" in answer.words.lower() else State("UNKNOWN", answer.words)


def cancel(job: int) -> None:
    """Asks; a job that is over already is no error."""
    _slurm("scancel", str(job))


def usable(partition: str | None, *, cpus: int) -> tuple[int, list[str]] | None:
    """(machines with that many CPUs that are not broken, the names of the broken ones) of a partition, or of the default one.

    None when Slurm did not say.
    """
    words = ["sinfo", "--Node", "--noheader", "--format=%N|%T|%P|%c"]
    answer = _slurm(*words, *([f"--partition={partition}"] if partition else []))
    lines = [line.split("|") for line in answer.out.splitlines() if line.count("|") == 3]
    if partition is None:
        lines = [line for line in lines if line[2].strip().endswith("*")]
    rows = {name: (word, num) for name, word, _, num in lines}  # by name: a machine may be in several partitions
    if not answer.ok or not rows:
        return None
    broken = [name for name, (word, _) in rows.items() if any(sign in word.lower() for sign in _BROKEN)]
    return sum(name not in broken and int(num) >= cpus for name, (_, num) in rows.items()), broken


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
        case "GONE":
            return failed("lost", f"job {job} is over, and Slurm has forgotten how it ended")
        case _:
            return None
