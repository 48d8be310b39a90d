"""What Slurm answers, and what follows from it: states, refusals, waiting. Slurm itself is a table here; the real one is in e2e/."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from paceline.launch.command import Answer
from paceline.launch.slurm import queue, wait
from paceline.launch.slurm.queue import State
from paceline.launch.slurm.script import clock
from paceline.launch.slurm.wait import WaitedJob
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
    line = "JobId=7 JobName=x JobState=PENDING Reason=Resources Dependency=(null) Partition=main NodeList=(null)\n"
    answers(monkeypatch, scontrol=Answer(0, line, ""))
    assert queue.state(7) == State("PENDING", "Resources", "", "main")
    answers(monkeypatch, squeue=Answer(0, "RUNNING|None|node0|main\n", ""))
    assert queue.state(7).running


def test_forgotten_is_not_the_same_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, scontrol=Answer(1, "", "slurm_load_jobs error: Invalid job id specified"))
    assert queue.state(7) == State("GONE")
    busy = Answer(1, "", "slurm_load_jobs error: Socket timed out on send/recv operation")
    answers(monkeypatch, scontrol=busy)
    assert not queue.state(7).over, "a controller that does not answer must not cost a running job"
    answers(monkeypatch, scontrol=busy, sacct=Answer(0, "RUNNING|node0\n", ""))
    assert queue.state(7).running


def test_machines_that_will_come_back_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, sinfo=Answer(0, "node0|draining|main*|4\nnode1|idle|main*|4\n", ""))
    assert queue.usable(None, cpus=1) == (2, [])
    answers(monkeypatch, sinfo=Answer(1, "", "Unable to contact slurm controller"))
    assert queue.usable(None, cpus=1) is None, "nothing follows from no answer"


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
    monkeypatch.setattr(wait, "_ASK_S", (0.05,))
    monkeypatch.setattr(wait, "_LOOK_S", 0.01)
    monkeypatch.setattr(wait, "_LAG_S", 0.2)
    monkeypatch.setattr(wait, "_LOST_S", 0.1)
    monkeypatch.setattr(wait, "_SLACK_S", 0.1)
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
    monkeypatch.setattr(wait, "_SHARED_DISK_S", 0.1)
    run.job("began").write_text("1000.5\n")
    run.job("ended").write_text("0 1012.0\n")
    ended = WaitedJob(7, run, SPEC).wait()
    assert (ended.started_t, ended.wall_s, ended.said) == (1000.5, 11.5, None)
    assert [end.code for end in ended.exits] == [0]


def test_cancelled_from_outside(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "PENDING", "RUNNING", "CANCELLED")
    run.machines.write_text("{}")
    ended = WaitedJob(7, run, SPEC).wait()
    assert ended.said is not None and ended.said.why == "job 7 was cancelled (scancel) from outside"


def test_machines_that_do_not_meet_are_given_up(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = slurm(monkeypatch, "RUNNING")
    run.job("checking").write_text("1\n")
    ended = WaitedJob(7, run, SPEC).wait()
    assert fake.cancelled and ended.said is not None and ended.said.kind == "launch"
    assert "did not find each other within 1 s" in str(ended.said.why) and "not even its log is here" in str(
        ended.said.why
    )


def test_too_few_machines_are_not_waited_for(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = slurm(monkeypatch, "PENDING")
    monkeypatch.setattr(queue, "usable", lambda partition, cpus: (1, ["node1"]))
    ended = WaitedJob(7, run, SPEC).wait()
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
    assert WaitedJob(7, run, SPEC).wait().said is None, "the rank's own word stands"
    assert fake.cancelled


def test_a_run_that_went_well_waits_for_its_files(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system shows the last lines late: completed is not failed because of it."""
    slurm(monkeypatch, "COMPLETED")

    def late(seconds: float) -> None:
        time.sleep(seconds)
        run.job("began").write_text("1000\n")
        run.job("ended").write_text("0 1010\n")
        for rank in range(2):
            log = EventLog(run.events(rank))
            log.write(Broke(kind="x", why="the last word, whatever it is", t=1010.0, rank=rank))
            log.close()

    writer = threading.Thread(target=late, args=(0.5,))
    writer.start()
    ended = WaitedJob(7, run, SPEC).wait()
    writer.join()
    assert ended.said is None and [end.code for end in ended.exits] == [0]


def test_a_job_that_says_nothing_is_quoted_by_its_log(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "FAILED")
    run.job("job.log").write_text("node list: a\n/env/activate: line 3: module: command not found\n")
    ended = WaitedJob(7, run, SPEC).wait()
    assert ended.said is not None and str(ended.said.why).endswith(
        "it said: /env/activate: line 3: module: command not found"
    )


def test_the_check_before_the_ranks_is_quoted(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "FAILED")
    run.job("ended").write_text("66 1010\n")
    run.log("preflight", "err").parent.mkdir()
    run.log("preflight", "err").write_text("python: No module named paceline\n")
    ended = WaitedJob(7, run, SPEC).wait()
    assert (
        ended.said is not None
        and ended.said.why == "the check before the ranks failed: python: No module named paceline"
    )


def test_a_time_limit_of_ours(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "FAILED")
    run.job("began").write_text("1000\n")
    run.job("ended").write_text("124 1030\n")
    assert WaitedJob(7, run, SPEC.model_copy(update={"timeout": 30.0})).wait().timeout_s == 30.0


def test_what_is_waited_for_is_said(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(monkeypatch, "PENDING", "PENDING", "COMPLETED")
    monkeypatch.setattr(wait, "_SHARED_DISK_S", 0.5)  # nothing was written: it would be waited for
    said: list[str] = []
    WaitedJob(7, run, SPEC).wait(lambda elapsed_s, words: said.append(words))
    assert "job 7 waits in the queue (Resources)" in said
