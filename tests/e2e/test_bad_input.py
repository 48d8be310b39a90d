"""Whatever is wrong with what a user gives, the answer is an exit code, one clear sentence, and nothing left behind.

A table: what is typed, the exit code, what must be said. Exit code 2: refused, and the folder is as it was. Exit code 1: a
run was started and failed; its directory holds the record of that, and `paceline report` can read it. Some of every group are typed
into a shell's process of their own (`IN_A_SHELL`); the others are the same command in this process, whose ranks are forked.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from conftest import Command
from e2e.bad_data import Maker, damaged_gzip, features, mnist
from e2e.processes import left_after, marked
from paceline.records.record import load

TASKS = Path(__file__).with_name("tasks")
MOST_LINES = 4  # a few problems at once are fine; a screenful is not
# A user's terminal is strict about text; the C locale of a test machine is not.
STRICT = {"PYTHONIOENCODING": "utf-8:strict"}


@dataclass(frozen=True)
class Case:
    """`words` as typed after `paceline`; {t} is the folder of tasks. `says`: all of it, somewhere on stderr."""

    words: str
    code: int
    says: tuple[str, ...]
    kind: str | None = None  # of the failed run; None where none was started
    files: Mapping[str, str] = field(default_factory=dict)
    make: Maker | None = None
    usage: bool = False  # a mistake in the options: typer answers, in its own form

    def prepare(self, folder: Path) -> None:
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text.encode("latin-1"))
        if self.make is not None:
            self.make(folder)


def refused(words: str, *says: str, make: Maker | None = None, usage: bool = False, **files: str) -> Case:
    """Files are given as name__ending="text"."""
    named = {name.replace("__", "."): text for name, text in files.items()}
    return Case(words, 2, says, files=named, make=make, usage=usage)


def failed(words: str, kind: str, *says: str, make: Maker | None = None) -> Case:
    return Case(words, 1, says, kind=kind, make=make)


def study(text: str, *says: str) -> Case:
    return refused("study s.yaml", *says, s__yaml=text)


def holds(path: str, text: str, words: str, *says: str) -> Case:
    """A folder that holds something already."""
    return Case(words, 2, says, files={path: text})


NAMES_AND_VALUES = {
    "unknown task": refused("run resnet", "unknown task 'resnet'", "built in: features", "path/to/file.py"),
    "misspelt task": refused("run featurs", "did you mean 'features'?"),
    "misspelt setting": refused("run features bach=4", "'bach'", "did you mean 'batch'?"),
    "misspelt parameter": refused("run features hiden=4", "'hiden'", "did you mean 'hidden'?"),
    "not key=value": refused("run features 64", "'64'", "name=value, for example batch=64"),
    "no key": refused("run features =64", "'=64'", "name=value"),
    "key twice": refused("run features batch=4 batch=8", "batch was given twice"),
    "no value": refused("run features batch=", "batch= has no value"),
    "three problems at once": refused("run features batch=x lr=y 7=8 on=9", "batch=x", "lr=y", "on=9", "'7'"),
    "int": refused("run features batch=many", "batch=many: must be a whole number"),
    "int, not a float": refused("run features batch=3.5", "batch=3.5: must be a whole number"),
    "float": refused("run features lr=fast", "lr=fast: must be a number"),
    "bool": refused("run features shuffle=maybe", "shuffle=maybe: must be true or false"),
    "choice": refused(
        "run features optimizer=adm", "'adam', 'adamw', 'sgd', 'rmsprop' or 'task'", "did you mean 'adam'?"
    ),
    "duration": refused("run features timeout=soon", "timeout=soon: must be a number"),
    "parameter's type": refused("run features hidden=wide", "hidden=wide: must be a whole number"),
    "parameter's bool": refused("run lenet full=maybe", "full=maybe: must be true or false"),
    "batch=0": refused("run features batch=0", "batch=0: must be at least 1"),
    "lr=-1": refused("run features lr=-1", "lr=-1: must be more than 0"),
    "lr=nan": refused("run features lr=nan", "lr=nan: must be a finite number"),
    "lr=inf": refused("run features lr=inf", "lr=inf: must be a finite number"),
    "momentum=1.5": refused("run features momentum=1.5", "momentum=1.5: must be less than 1"),
    "seed=-1": refused("run features seed=-1", "seed=-1: must be at least 0"),
    "seed too large": refused("run features seed=3000000000", "must be less than 2147483648"),
    "epochs=0": refused("run features epochs=0", "epochs=0: must be at least 1"),
    "steps=0": refused("run features steps=0", "steps=0: must be at least 1"),
    "parameter out of range": failed("run features hidden=0 steps=2", "data", "hidden=0: must be at least 1"),
    "several values in a run": refused("run features batch=8,16", "batch=8,16", "one value", "paceline study"),
    "no task": refused("run", "Missing argument", usage=True),
    "unknown command": refused("rnu", "No such command 'rnu'", usage=True),
    "unknown option": refused("run features --bogus", "--bogus", usage=True),
    "list nonsense": refused("list nonsense", "unknown list 'nonsense'", "settings"),
    "unknown data set": refused("data fetch cifar", "unknown data set 'cifar'", "mnist"),
}

COMBINATIONS = {
    "batch and batch_per_rank": refused("run features batch=4 batch_per_rank=2", "both given", "give one"),
    "epochs and steps": refused("run features epochs=1 steps=2", "epochs and steps were both given", "give one"),
    "no machine": refused("run features on=0x1", "on=0x1: needs at least one machine"),
    "half a topology": refused("run features on=2", "on=2: must be MACHINESxPROCESSES, for example 1x2"),
    "twice an x": refused("run features on=1xx2", "on=1xx2: must be MACHINESxPROCESSES"),
    "two machines": refused("run features on=2x2", "asks for 2 machines", "use on=1x4", "one-machine"),
    "more ranks than memory": refused("run features on=1x100000", "100000 processes", "use fewer", "ranks-fit-memory"),
    "a rank without a sample": refused("run features batch=1 on=1x2", "batch=1 on 2 ranks", "use batch=2 or more"),
    "more ranks than GPUs": refused("run features device=cuda on=1x64 batch=64", "device=cuda", "use", "device=cpu"),
    "momentum with adam": refused("run features momentum=0.5", "adam has no momentum", "use sgd or rmsprop"),
    "backend": refused("run features backend=nccl device=cpu", "backend=nccl with device=cpu", "use backend=gloo"),
    "no such backend": refused("run features backend=mp", "backend=mp: must be 'gloo', 'mpi' or 'nccl'", "did you mean 'mpi'?"),
    "mpi by torchrun": refused("run features launcher=torchrun backend=mpi", "MPI itself started", "use launcher=mpirun"),
    "no such launcher": refused("run features launcher=slurm+torchun", "did you mean 'slurm+torchrun'?"),
    "two machines by torchrun": refused("run features on=2x1 launcher=torchrun", "use launcher=slurm+torchrun", "machine=0"),
    "machine without a folder": refused(
        "run features on=2x1 launcher=torchrun head=a machine=1", "machine=1: give --out too", "on a disk they share"
    ),
    "machine in a study": refused("study features on=2x1 launcher=torchrun head=a machine=1", "only a single run", "slurm+"),
    "slurm words without slurm": refused("run features partition=main mem=2G", "partition=main mem=2G with launcher=local"),
    "memory with a unit of its own": refused("run features launcher=slurm+srun mem=3Q", "mem=3Q"),
    "a word that is two": refused("run features launcher=slurm+srun 'partition=a b'", "partition=a b"),
    "a partition with a command in it": refused("run features launcher=slurm+srun 'partition=$(reboot)'", "partition=$(reboot)"),
    "a port for kings": refused("run features on=2x1 launcher=torchrun head=a machine=0 port=80", "port=80"),
    "nothing to detach": refused("run features steps=1 --detach", "--detach with launcher=local", "use a slurm+ launcher"),
    "fp16 that would be dropped": refused("run features wrap=accelerate precision=fp16 device=cpu", "trains in fp32"),
    "fp8 on a CPU": refused("run features precision=fp8", "fp8 products need an NVIDIA GPU", "use precision=bf16"),
    "a layer that cannot be cut": refused("run features sharding=tensor on=1x2", "define tensor_plan(model)"),
    "a CUDA graph on a CPU": refused("run features graph=captured", "use graph=compile graph_of=step, or a GPU"),
    "options without DDP": refused("run features bucket_mb=5", "bucket_mb"),
    "a cluster of none": refused("cluster up --machines 0 --cores 1", "machines"),
    "a link of no speed": refused("cluster up --machines 2 --cores 1 --link fast", "--link"),
    "workers without work": refused("run features workers=2", "in memory already", "leave it out"),
    "target in percent": refused("run features target=97", "target=97", "97 % is 0.97"),
    "target without a direction": refused("run {t}/wrong_figures.py:OwnScore target=1", "which way", "better = 'higher'"),
    "shuffled stream": refused("run {t}/wrong_data.py:Stream shuffle=true", "order of its own", "use shuffle=false"),
    "stream with workers": refused("run {t}/wrong_data.py:Stream workers=1", "every sample again", "use workers=0"),
    "a model of its rank": failed(
        "run {t}/wrong_model.py:OfItsRank on=1x2 steps=2 timeout=60", "task", "rank 1 has built another model than rank 0", "of shape"
    ),
    "one sample for BatchNorm": refused(
        "run {t}/wrong_model.py:OneSampleForBatchNorm batch=8 steps=6", "33 training samples", "has a single sample", "choose another"
    ),
}  # fmt: skip

TINY = "batch=4 steps=2"
DATA = {
    "no such folder": refused("run features data=nowhere", "data=", "/nowhere: there is no such folder"),
    "a file for a folder": refused("run features data=x.txt", "data=", "/x.txt: there is no such folder", x__txt="no"),
    "an empty folder": failed(f"run lenet data=. {TINY}", "data", "no train images in it", "train-images-idx3-ubyte"),
    "labels missing": failed(
        f"run lenet data=data {TINY}", "data", "no t10k labels", "t10k-labels-idx1-ubyte",
        make=mnist("t10k-labels-idx1-ubyte", lambda _: None),
    ),
    "images truncated": failed(
        f"run lenet data=data {TINY}", "data", "truncated: expected 6288 bytes, found 6188", "fetch the file again",
        make=mnist("train-images-idx3-ubyte", lambda blob: blob[:-100]),
    ),
    "gzip damaged": failed(
        f"run lenet data=data {TINY}", "data", "train-labels-idx1-ubyte.gz", "fetch it again",
        make=mnist("train-labels-idx1-ubyte.gz", damaged_gzip),
    ),
    "images and labels exchanged": failed(
        f"run lenet data=data {TINY}", "data", "0x00000803 was expected", "exchanged?",
        make=mnist("train-images-idx3-ubyte", lambda blob: b"\0\0\x08\x01" + blob[4:]),
    ),
    "not an IDX file": failed(
        f"run lenet data=data {TINY}", "data", "not an IDX file", "0x3c68746d",
        make=mnist("train-images-idx3-ubyte", lambda _: b"<html>404"),
    ),
    "more images than labels": failed(
        f"run lenet data=data {TINY}", "data", "8 images", "7 labels",
        make=mnist("train-labels-idx1-ubyte", lambda blob: b"\0\0\x08\x01\0\0\0\x07" + blob[8:-1]),
    ),
    "features of two widths": failed(
        f"run features data=data {TINY}", "data", "train_x is 3 wide, test_x 5", "they must agree",
        make=features(test_x=np.zeros((4, 5), np.float32)),
    ),
    "more samples than labels": failed(
        f"run features data=data {TINY}", "data", "8 samples", "6 labels", make=features(train_y=np.arange(6) % 2)
    ),
    "pickled objects": failed(
        f"run features data=data {TINY}", "data", "pickled Python objects, which are never loaded", "plain numbers",
        make=features(train_x=np.array([{"a": 1}], dtype=object)),
    ),
    "a feature that is NaN": failed(
        f"run features data=data {TINY}", "data", "sample 2 has a feature that is NaN",
        make=features(train_x=np.where(np.arange(24).reshape(8, 3) == 7, np.nan, 1.0)),
    ),
    "labels that are fractions": failed(
        f"run features data=data {TINY}", "data", "labels must be whole numbers", make=features(train_y=np.zeros(8))
    ),
}  # fmt: skip

FILES = {
    "missing": refused("run nowhere.py", "task 'nowhere.py': there is no such file"),
    "not Python": refused("run notes.txt", "'notes.txt'", "nor a Python file", notes__txt="def model(): ..."),
    "syntax error": refused("run t.py", "t.py: could not be imported: SyntaxError", "line 2", t__py="import os\ndef model(:\n"),
    "import error": refused("run t.py", "No module named 'torchvison'", "t.py, line 1", t__py="import torchvison\n"),
    "not text": refused("run t.py", "t.py: could not be imported", "SyntaxError", t__py="\x80\x81"),
    "nothing in it": refused("run t.py", "no model(), train_data(), test_data() in it", t__py="x = 1\n"),
    "exits at import": refused("run t.py", "t.py: could not be imported: the task called exit(3)", t__py="exit(3)\n"),
    "kills itself at import": refused(
        "run t.py", "killed by SIGKILL", t__py="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    ),
    "leaves at import": Case("run t.py", 1, ("exit code 4",), files={"t.py": "import os\nos._exit(4)\n"}),
    "hangs at import": refused(
        "run t.py timeout=3s", "did not say what it is within 3 s", "hangs", t__py="import time\ntime.sleep(600)\n"
    ),
    "several classes": refused("run {t}/wrong_figures.py", "several tasks; say which: wrong_figures.py:LossIsText"),
    "unknown class": refused("run {t}/dies.py:Raise", "unknown class 'Raise'; did you mean 'Raises'?"),
    "class with a part missing": refused("run {t}/wrong_model.py:NoTestData", "class NoTestData has no test_data()"),
    "unknown parameter": refused("run {t}/wrong_model.py:Wide wdth=3", "'wdth'", "did you mean 'width'?"),
    "wrong parameter": refused("run {t}/wrong_model.py:Wide width=x", "width=x: must be a whole number"),
    "parameter without a default": refused("run {t}/wrong_model.py:NoDefault", "parameter 'width' has no default"),
    "takes no data": refused("run {t}/good.py data=.", "good.py: takes no data=", "add a parameter `data`"),
    "unknown name in defaults": refused("run {t}/wrong_model.py:UnknownDefault", "'bach'; did you mean 'batch'?"),
    "impossible default": refused("run {t}/wrong_model.py:ImpossibleDefault", "its default batch: must be at least 1"),
    "better is neither way": refused("run {t}/wrong_model.py:BadBetter", "better is 'bigger'", "'higher' or 'lower'"),
}  # fmt: skip

STEPS = "batch=8 steps=6"
TASK_CODE = {
    "model() is no module": refused("run {t}/wrong_model.py:NotAModule", "model() returned a dict, not a torch.nn.Module"),
    "model() raises": refused("run {t}/wrong_model.py:RaisesInModel", "FileNotFoundError: weights.bin", "in model)"),
    "model() larger than memory": refused("run {t}/wrong_model.py:TooLarge", "model(): out of memory"),
    "no parameters": refused("run {t}/wrong_model.py:NoParameters", "model() has no trainable parameter"),
    "frozen parameters": refused("run {t}/wrong_model.py:Frozen", "model() has no trainable parameter"),
    "shapes do not match": failed(f"run {{t}}/wrong_model.py:WrongWidth {STEPS}", "task", "shapes cannot be multiplied"),
    "data of a wrong type": refused("run {t}/wrong_data.py:WrongType", "train_data() returned a str; it must return"),
    "no training samples": refused("run {t}/wrong_data.py:Empty", "train_data() returned no samples"),
    "no test samples": refused("run {t}/wrong_data.py:EmptyTest", "test_data() returned no samples"),
    "arrays of two lengths": refused("run {t}/wrong_data.py:Mismatched", "arrays of different lengths: 32, 30"),
    "data raises": refused("run {t}/wrong_data.py:RaisesInData", "PermissionError: the share", "in train_data)"),
    "a dataset without a length": refused("run {t}/wrong_data.py:NoLength", "without a length: define __len__"),
    "a stream that ends early": failed(f"run {{t}}/wrong_data.py:ShortStream {STEPS}", "data", "ended after 20 of the 32"),
    "a stream that goes on": failed(f"run {{t}}/wrong_data.py:LongStream {STEPS}", "data", "gave more than the 32 samples"),
    "a label too many": failed(f"run {{t}}/wrong_data.py:LabelTooLarge {STEPS}", "task", "Target 7 is out of bounds"),
    "a row that cannot be read": refused(
        f"run {{t}}/wrong_data.py:UnreadableRow {STEPS}", "ValueError: row 3 cannot be read", "in __getitem__)"
    ),
    "a row a loader process cannot read": failed(
        f"run {{t}}/wrong_data.py:UnreadableInALoader {STEPS} workers=1", "task", "ValueError: row 3 cannot be read", "in __getitem__)"
    ),
    "other data on another rank": failed(
        f"run {{t}}/wrong_data.py:Uneven {STEPS} on=1x2", "data", "32 samples on one rank and 40 on another"
    ),
    "loss is text": refused(f"run {{t}}/wrong_figures.py:LossIsText {STEPS}", "wrong_figures.py", "returned a str; it must return"),
    "loss is a vector": refused(f"run {{t}}/wrong_figures.py:LossIsVector {STEPS}", "wrong_figures.py", "a tensor of shape [32]"),
    "loss has no gradient": refused(f"run {{t}}/wrong_figures.py:LossHasNoGradient {STEPS}", "wrong_figures.py", "without a gradient"),
    "loss is NaN": failed(f"run {{t}}/wrong_figures.py:LossIsNan {STEPS}", "nonfinite", "the loss became nan on rank 0"),
    "score is infinite": failed(f"run {{t}}/wrong_figures.py:ScoreIsInfinite {STEPS}", "nonfinite", "the gain became inf"),
    "score is text": refused(f"run {{t}}/wrong_figures.py:ScoreIsText {STEPS}", "wrong_figures.py", "score 'grade' is a str"),
    "no usual loss": refused(f"run {{t}}/wrong_figures.py:NoUsualLoss {STEPS}", "wrong_figures.py", "defines no loss(outputs, batch)"),
}  # fmt: skip

DEATHS = {
    "raises in step 3": failed(f"run {{t}}/dies.py:Raises {STEPS}", "task", "ValueError: the third batch is cursed", "in end)"),
    "raises on rank 1 only": failed(
        f"run {{t}}/dies.py:RaisesOnRankOne {STEPS} on=1x2", "task", "rank 1: dies.py: ValueError: only here"
    ),
    "raises in the evaluation": failed(
        "run {t}/dies.py:RaisesInTest batch=8 steps=2", "task", "(evaluation): ValueError: the test set is cursed"
    ),
    "raises what is no text": failed(f"run {{t}}/dies.py:RaisesUnprintable {STEPS}", "task", r"cannot read \udcff.png"),
    "raises a page": failed(f"run {{t}}/dies.py:RaisesManyLines {STEPS}", "task", "ValueError: first and more and more"),
    "interrupts itself": failed(f"run {{t}}/dies.py:RaisesInterrupt {STEPS}", "killed", "interrupted (SIGINT"),
    "calls exit": failed(f"run {{t}}/dies.py:CallsExit {STEPS}", "task", "the task called exit(5)"),
    "leaves without a word": failed(f"run {{t}}/dies.py:LeavesQuietly {STEPS}", "exit", "rank 0 left before it had finished"),
    "leaves with a code": failed(f"run {{t}}/dies.py:LeavesLoudly {STEPS}", "exit", "exit code 3", "logs"),
    "kills itself": failed(f"run {{t}}/dies.py:KillsItself {STEPS}", "killed", "rank 0 was killed by SIGKILL"),
    "segfaults": failed(f"run {{t}}/dies.py:Segfaults {STEPS}", "crash", "rank 0 crashed with SIGSEGV"),
    "aborts": failed(f"run {{t}}/dies.py:Aborts {STEPS}", "crash", "rank 0 crashed with SIGABRT"),
    "hangs": failed(f"run {{t}}/dies.py:Hangs {STEPS} timeout=6s", "timeout", "still running after 6 s", "timeout=6"),
    "hangs and will not be asked": failed(
        f"run {{t}}/dies.py:HangsHard {STEPS} timeout=12s", "timeout", "still running after 12 s"
    ),
    "kills the look into it": refused(f"run {{t}}/dies.py:KillsTheLook {STEPS}", "killed by SIGKILL"),
    "hangs the look into it": refused(f"run {{t}}/dies.py:HangsTheLook {STEPS} timeout=6s", "did not say what it is within 6 s"),
    "leaves a child behind": failed(f"run {{t}}/dies.py:LeavesChild {STEPS}", "task", "left a child behind"),
    "leaves a daemon behind": failed(f"run {{t}}/dies.py:LeavesDaemon {STEPS}", "task", "left a daemon behind"),
}  # fmt: skip

RECORD = dict.fromkeys(("kind", "why", "key", "train", "test", "time", "ranks", "throughput"))
NEWER = json.dumps({**RECORD, "schema": 99, "outcome": "completed", "spec": {"task": "lenet", "on": "1x1"}})
FOLDERS = {
    "out holds a finished run": holds("r/result.json", "{}", "run features --out r", "holds a finished run already"),
    "out is somebody else's": holds("r/thesis.tex", "", "run features --out r", "not a run of ours", "another --out"),
    "out is a file": holds("r", "", "run features --out r", "not a run of ours; choose another --out"),
    "out is below a file": Case("run features --out r/x", 1, ("r/x", "cannot be written", "Not a directory"), files={"r": ""}),
    "study's out is somebody else's": holds("r/thesis.tex", "", "study features --out r", "not a study of ours"),
    "study's out is a file": holds("r", "", "study features --out r", "not a study of ours; choose another --out"),
    "report of nothing": refused("report nowhere", "nowhere: there is no such folder"),
    "report of a file": holds("r", "", "report r", "r: is a file; give the folder"),
    "report of an empty folder": holds("r/.keep", "", "report r", "no finished run and no study in it"),
    "report of a damaged record": holds("r/result.json", '{"schema": 1', "report r", "r/result.json: not valid JSON", "damaged"),
    "report of half a record": holds("r/result.json", '{"outcome": "x", "spec": {}}', "report r", "key", "missing", "damaged"),
    "report of a newer record": holds("r/result.json", NEWER, "report r", "another version of Paceline (schema 99"),
    "report of a damaged study": holds("r/study.json", '{"name": 3}', "report r", "r/study.json: not a study of ours"),
    "list of a damaged record": holds("runs/a/result.json", "[]", "runs list", "a/result.json: not a record of ours"),
    "list of nothing": refused("runs list --in nowhere", "nowhere: there is no such folder"),
    "compare with nothing": refused("runs compare a b", "a: not a finished run"),
    "remove what is not ours": holds("r/thesis.tex", "", "runs remove r --yes", "not a run or a study of ours; nothing was removed"),
    "remove nothing": refused("runs remove nowhere --yes", "nowhere: there is no such run or study"),
    "fetch into a file": holds("r", "", "data fetch mnist --to r", "cannot be made (Not a directory); name another folder"),
}  # fmt: skip

HEAD = "study: mine\ntask: features\n"
STUDIES = {
    "unknown study": refused("study mnist-scalin", "did you mean 'mnist-scaling'?", "file.yaml"),
    "no such file": refused("study nowhere.yaml", "nowhere.yaml: there is no such file"),
    "syntax": study(HEAD + "sweep:\n  batch: [8, 16\nrepeats: 2\n", "s.yaml:5:8: not valid YAML"),
    "tab": study(HEAD + "sweep:\n\tbatch: [8]\n", "s.yaml:4:1: not valid YAML", r"'\t'"),
    "key twice": study(HEAD + "task: lenet\n", "s.yaml:3:1: not valid YAML", 'duplicate key "task"'),
    "unknown key": study(HEAD + "swep:\n  batch: [8]\n", "s.yaml:3:1: swep: unknown name", "did you mean 'sweep'?"),
    "unknown setting": study(HEAD + "settings:\n  bach: 8\n", "s.yaml:4:9: unknown setting 'bach'; did you mean 'batch'?"),
    "wrong value": study(HEAD + "sweep:\n  batch: [8, many]\n", "s.yaml:4:14: batch=many: must be a whole number"),
    "not a list": study(HEAD + "sweep: {batch: 8}\n", "s.yaml:3:16: sweep.batch: must be a list"),
    "empty": study("", "s.yaml: a study file is a mapping with `study`, `task` and `sweep`"),
    "not a mapping": study("- 8\n", "s.yaml:1:1: a study file is a mapping"),
    "no task": study("study: mine\n", "s.yaml:1:1: task: is required"),
    "unknown task": study("study: mine\ntask: featurs\n", "unknown task 'featurs'; did you mean 'features'?"),
    "missing task file": study("study: mine\ntask: t.py\n", "t.py': there is no such file"),
    "name that is a path": study("study: ../mine\ntask: lenet\n", "s.yaml:1:8: study:", "'../mine'"),
    "swept and set": study(HEAD + "settings: {batch: 8}\nsweep: {batch: [8]}\n", "batch stands in settings and in sweep"),
    "baseline without a cell": study(HEAD + "sweep: {batch: [8]}\nbaseline: {batch: 9}\n", "{'batch': 9}: no cell", "batch=8"),
    "an alias of itself": study(HEAD + "notes: &n [*n]\n", "s.yaml: nested too deeply"),
    "an object": study("study: !!python/object/apply:os.getpid []\n", "s.yaml:1:8: not valid YAML", "python/object"),
    "not text": study("study: \xff\xfe\n", "s.yaml: not a text file in UTF-8"),
    "no cell can be run": refused("study features on=2x1,3x1", "on=2x1", "on=3x1", "one-machine"),
    "repeats=0": refused("study features --repeats 0", "--repeats 0: must be between 1 and 1000"),
    "repeats=many": refused("study features --repeats many", "--repeats", usage=True),
    "budget": refused("study features --budget soon", "--budget soon: must be a time such as 90s, 20m or 2h"),
    "missing between commas": refused("study features batch=8,,16", "batch=8,,16: a value is missing"),
    "one wrong of several": refused("study features batch=8,many", "batch=many: must be a whole number"),
    "misspelt sweep": refused("study features bach=8,16", "'bach'; did you mean 'batch'?"),
}  # fmt: skip

GROUPS = {
    "name or value": NAMES_AND_VALUES,
    "combination": COMBINATIONS,
    "data": DATA,
    "task file": FILES,
    "task code": TASK_CODE,
    "death": DEATHS,
    "folder": FOLDERS,
    "study": STUDIES,
}
CASES = {f"{group}: {name}": case for group, cases in GROUPS.items() for name, case in cases.items()}
# Where a command's own process may matter (how it ends what it started, what torch's import has to do with it), and one of each group.
IN_A_SHELL = {
    "name or value: unknown task", "name or value: no task", "combination: two machines", "combination: a model of its rank",
    "data: images truncated", "task file: kills itself at import", "task file: hangs at import", "task code: model() raises",
    "task code: a row a loader process cannot read", "death: raises what is no text", "death: interrupts itself",
    "death: leaves without a word", "death: segfaults", "death: hangs and will not be asked", "death: leaves a daemon behind",
    "folder: out is below a file", "study: unknown study",
}  # fmt: skip


def test_the_table_is_as_long_as_promised() -> None:
    assert len(CASES) >= 40
    assert len({(case.words, *sorted(case.files.items()), case.make) for case in CASES.values()}) == len(CASES)
    assert all(case.code in (1, 2) and case.says for case in CASES.values())
    assert set(CASES) >= IN_A_SHELL and {name.partition(":")[0] for name in IN_A_SHELL} == set(GROUPS)


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, paceline: Command, paceline_here: Command, tmp_path: Path) -> None:
    case = CASES[name]
    command = paceline if name in IN_A_SHELL else paceline_here
    case.prepare(tmp_path)
    before = _contents(tmp_path)
    words = shlex.split(case.words.format(t=TASKS)) + (["--out", "run"] if case.kind else [])

    done = command(*words, env={**marked(tmp_path), **STRICT})

    assert left_after(tmp_path, seconds=0.5) == [], "a process outlived the command"
    assert done.returncode == case.code, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    missing = [text for text in case.says if text not in done.stderr]
    assert not missing, done.stderr
    spoken = "".join(line for line in done.stderr.splitlines(True) if not line.startswith("on="))  # what `on` means
    if not case.usage:
        lines = spoken.splitlines()
        assert 1 <= len(lines) <= MOST_LINES, done.stderr
        assert all(line.startswith("paceline: ") for line in lines), done.stderr
    if case.kind is None:
        assert done.stdout == ""
        assert _contents(tmp_path) == before, "what was refused leaves no trace"
    else:
        _check_failed_run(case.kind, spoken, tmp_path / "run", command)


def _check_failed_run(kind: str, said: str, run: Path, command: Command) -> None:
    """The directory tells the same story as the terminal, and can still be reported on."""
    record = load(run)
    assert (record.outcome, record.kind) == ("failed", kind)
    assert said == f"paceline: {kind}: {record.why}\n"
    assert json.loads((run / "spec.json").read_text()) == record.spec
    assert record["weights_hash"] is None and record["weights"] is None
    assert not list(run.rglob("*.tmp")), "half a file"
    report = command("report", run, env=STRICT)
    assert report.returncode == 0, report.stderr
    assert "failed" in report.stdout and report.stderr == ""


SPOKEN = ["task code: loss is NaN", "death: raises what is no text", "death: kills itself"]


@pytest.mark.parametrize("name", SPOKEN)
def test_a_failed_run_is_one_json_document(name: str, paceline_here: Command) -> None:
    case = CASES[name]
    done = paceline_here(*shlex.split(case.words.format(t=TASKS)), "--json", "--out", "run", env=STRICT)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert (document["outcome"], document["kind"]) == ("failed", case.kind)
    assert done.stderr == f"paceline: {case.kind}: {document['why']}\n"


def test_a_refused_run_is_one_json_document(paceline: Command) -> None:
    done = paceline("run", "features", "batch=0", "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert (document["outcome"], document["kind"]) == ("skipped", "refused")
    assert done.stderr == f"paceline: {document['why']}\n"


def test_the_page_of_a_failed_run_can_be_drawn_and_damaged_events_are_named(
    paceline_here: Command, tmp_path: Path
) -> None:
    """The message holds what no encoding takes; then the events are damaged, as by a full disk or an editor."""
    paceline_here("run", TASKS / "dies.py:RaisesUnprintable", *STEPS.split(), "--out", "run", env=STRICT)
    drawn = paceline_here("report", "run", "--html", "page.html", env=STRICT)
    assert drawn.returncode == 0, drawn.stderr
    assert r"\udcff.png" in (tmp_path / "page.html").read_text()
    events = tmp_path / "run" / "events" / "rank_00000.jsonl"
    events.write_text(events.read_text().replace('"event":"applied"', '"event":"applause"'))
    damaged = paceline_here("report", "run", "--html", "page.html", env=STRICT)
    assert damaged.returncode == 2
    assert "rank_00000.jsonl, line 2: not an event of ours" in damaged.stderr


def test_an_odd_name_is_not_bad_input(paceline_here: Command, tmp_path: Path) -> None:
    """`.py` in the name of a folder, a space in the name of a file: odd, and fine."""
    folder = tmp_path / "my.pyproject"
    folder.mkdir()
    shutil.copy(TASKS / "good.py", folder / "my task.py")
    done = paceline_here("study", "my.pyproject/my task.py:Good", "batch=4,8", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "runs/my_task_batch" in done.stdout
