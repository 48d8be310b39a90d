"""What Slurm answers, and what follows from it: states, refusals, waiting. Slurm itself is a table here; the real one is in e2e/."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.launch.command import Answer
from paceline.launch.slurm import attend, queue
from paceline.launch.slurm.attend import Attended
from paceline.launch.slurm.queue import State
from paceline.launch.slurm.script import clock
from paceline.records.events import Broke, EventLog
from paceline.records.layout import RunDir
from paceline.spec.run import Spec

NO = Answer(1, "", "Slurm accounting storage is disabled")
SPEC = Spec(task="features", on="2x1", launcher="slurm+srun", threads=1, cpus_per_task=1, meet_within=1)


def answers(monkeypatch: pytest.MonkeyPatch, **by_program: Answer) -> None:
    monkeypatch.setattr(queue, "ask", lambda argv, **_: by_program.get(argv[0], NO))


def test_the_accounting_is_believed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, sacct=Answer(0, "CANCELLED by 0|node[0-1]\n", ""))
    assert queue.state(7) == State("CANCELLED", hosts="node[0-1]")


def test_without_accounting_the_controller_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "JobId=7 JobName=x JobState=PENDING Reason=Resources Dependency=(null) NodeList=(null)\n"
    answers(monkeypatch, scontrol=Answer(0, line, ""))
    assert queue.state(7) == State("PENDING", "Resources", "")
    answers(monkeypatch, squeue=Answer(0, "RUNNING|None|node0\n", ""))
    assert queue.state(7).running
    answers(monkeypatch)
    assert queue.state(7) == State("GONE")


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("sbatch: error: invalid partition specified: nope", "see `sinfo`"),
        ("sbatch: error: Memory specification can not be satisfied", "give a smaller mem="),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            "no machine has what",
        ),
        ("sbatch: fatal: Could not establish a configuration source", "paceline cluster up"),
    ],
)
def test_what_sbatch_refuses_comes_with_advice(said: str, advice: str) -> None:
    assert advice in queue.refusal(said) and "sbatch: error" not in queue.refusal(said)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("PREEMPTED", "preempted"), ("TIMEOUT", "preempted"), ("CANCELLED", "killed"), ("NODE_FAIL", "lost"), ("OUT_OF_MEMORY", "memory")],
)  # fmt: skip
def test_ends_that_were_slurms_doing(word: str, kind: str) -> None:
    found = queue.outcome(State(word), 7)
    assert found is not None and found.kind == kind and "job 7" in str(found.why)
    assert queue.outcome(State("FAILED"), 7) is None, "why, the run says itself"


def test_usable_machines_are_those_of_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "node0|idle|main*|4\nnode1|down*|main*|4\nnode2|mixed|other|4\n"
    answers(monkeypatch, sinfo=Answer(0, rows, ""))
    assert queue.usable(None, cpus=4) == (1, ["node1"])
    assert queue.usable(None, cpus=5) == (0, ["node1"])


def test_slurm_counts_in_minutes() -> None:
    assert (clock(1), clock(60), clock(61), clock(7200)) == ("00:01:00", "00:01:00", "00:02:00", "02:00:00")


class Slurm:
    """One job's states, one a question; the last one stays."""

    def __init__(self, *words: str) -> None:
        self._words, self.cancelled = list(words), False

    def state(self, job: int) -> State:
        if self.cancelled:
            return State("CANCELLED")
        word = self._words.pop(0) if len(self._words) > 1 else self._words[0]
        return State(word, reason="Resources" if word == "PENDING" else "", hosts="node[0-1]")

    def cancel(self, job: int) -> None:
        self.cancelled = True


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setattr(attend, "_ASK_S", (0.05,))
    monkeypatch.setattr(attend, "_LOOK_S", 0.01)
    monkeypatch.setattr(attend, "_LAG_S", 0.2)
    monkeypatch.setattr(attend, "_LOST_S", 0.1)
    monkeypatch.setattr(attend, "_SLACK_S", 0.1)
    monkeypatch.setattr(queue, "usable", lambda partition, cpus: (2, []))
    folder = RunDir(tmp_path)
    folder.job("x").parent.mkdir()
    return folder


def slurm(monkeypatch: pytest.MonkeyPatch, *words: str) -> Slurm:
    fake = Slurm(*words)
    monkeypatch.setattr(queue, "state", fake.state)
    monkeypatch.setattr(queue, "cancel", fake.cancel)
    return fake


def test_the_jobs_own_clock_is_the_wall_time(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "COMPLETED")
    run.job("began").write_text("1000.5\n")
    run.job("ended").write_text("0 1012.0\n")
    ended = Attended(7, run, SPEC).wait()
    assert (ended.started_t, ended.wall_s, ended.said) == (1000.5, 11.5, None)
    assert [end.code for end in ended.exits] == [0]


def test_cancelled_from_outside(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "PENDING", "RUNNING", "CANCELLED")
    run.machines.write_text("{}")
    ended = Attended(7, run, SPEC).wait()
    assert ended.said is not None and ended.said.why == "job 7 was cancelled (scancel) from outside"


def test_machines_that_do_not_meet_are_given_up(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = slurm(monkeypatch, "RUNNING")
    ended = Attended(7, run, SPEC).wait()
    assert fake.cancelled and ended.said is not None and ended.said.kind == "launch"
    assert "did not find each other within 1 s" in str(ended.said.why) and "not even its log is here" in str(
        ended.said.why
    )


def test_too_few_machines_are_not_waited_for(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = slurm(monkeypatch, "PENDING")
    monkeypatch.setattr(queue, "usable", lambda partition, cpus: (1, ["node1"]))
    ended = Attended(7, run, SPEC).wait()
    assert fake.cancelled and ended.said is not None
    assert (
        "needs 2 machines with 1 CPU each, and the partition has 1 such that can be used now (node1 cannot be used)"
        in str(ended.said.why)
    )


def test_a_rank_that_lost_a_machine_ends_the_job(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm would say RUNNING for minutes: the link is cut, and nobody can tell it."""
    fake = slurm(monkeypatch, "RUNNING")
    run.machines.write_text("{}")
    log = EventLog(run.events(0))
    log.write(Broke(kind="lost", why="gone", t=1.0, rank=0))
    log.close()
    assert Attended(7, run, SPEC).wait().said is None, "the rank's own word stands"
    assert fake.cancelled


def test_a_time_limit_of_ours(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "FAILED")
    run.job("began").write_text("1000\n")
    run.job("ended").write_text("124 1030\n")
    assert Attended(7, run, SPEC.model_copy(update={"timeout": 30.0})).wait().timeout_s == 30.0


def test_what_is_waited_for_is_said(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "PENDING", "PENDING", "COMPLETED")
    said: list[str] = []
    Attended(7, run, SPEC).wait(lambda elapsed_s, words: said.append(words))
    assert "job 7 waits in the queue (Resources)" in said
