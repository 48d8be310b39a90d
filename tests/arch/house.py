"""The plan of the house as data: rooms, doors, limits, and every exception with its reason. It checks nothing itself (`check.py` does).

Paths are relative to `src/paceline`. A change here is a change of the architecture: change `docs/architecture.md` in the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GROUND = ("base", "spec", "records")
WING = (
    "worker.world", "worker.tasks", "worker.transform", "worker.measure", "worker.resilience", "worker.kernels",
    "worker.sharding", "worker.optim", "worker.step", "worker.probe",
)  # fmt: skip

# room -> the rooms it may import. A room that is not here does not exist: a new folder is a decision, not an accident.
ROOMS: Mapping[str, tuple[str, ...]] = {
    # the ground floor: plain data
    "base": (),
    "spec": ("base",),
    "records": ("base", "spec"),
    # the parent: one process, no torch. These five never import each other.
    "launch": GROUND,
    "planner": GROUND,
    "analysis": GROUND,
    "report": GROUND,
    "data": GROUND,
    "study": (*GROUND, "launch"),
    "cluster": (*GROUND, "launch"),  # a cluster in a box: it asks ip and Slurm through launch's door
    "commands": (*GROUND, "launch", "planner", "analysis", "report", "data", "study", "cluster"),
    "cli": ("base", "commands"),
    "__main__": ("cli",),
    "__init__": ("records", "commands", "worker", "worker.tasks"),  # what a task's file uses
    # the worker: one process per rank. `worker` itself is the files at the top of the wing, which see all of it.
    "worker": (*GROUND, *WING),
    "worker.world": (*GROUND, "worker.kernels"),  # ranks of one machine talk through memory, by a kernel of ours
    "worker.tasks": GROUND,
    "worker.kernels": GROUND,
    # layers are replaced by kernels of ours; batches and outputs are of any container
    "worker.transform": (*GROUND, "worker.world", "worker.kernels", "worker.tasks"),
    "worker.measure": (*GROUND, "worker.world"),
    "worker.optim": (*GROUND, "worker.tasks"),
    "worker.sharding": (*GROUND, "worker.world", "worker.tasks", "worker.measure", "worker.transform", "worker.optim"),
    # one step: its state, its description, its executors
    "worker.step": (
        *GROUND,
        "worker.world",
        "worker.tasks",
        "worker.measure",
        "worker.transform",
        "worker.kernels",
        "worker.optim",
        "worker.sharding",
    ),
    "worker.resilience": (*GROUND, "worker.world"),
    # how a user's task recombines, in the describe job
    "worker.probe": (*GROUND, "worker.world", "worker.tasks", "worker.measure", "worker.transform", "worker.optim"),
}

# Files whose imports of other rooms are for the type checker only; at run time their names are resolved on first use.
TYPES_ONLY: Mapping[str, str] = {
    "__init__.py": "`import paceline` must cost nothing, and only `paceline.load` may bring torch into the user's process",
}


@dataclass(frozen=True, slots=True)
class Library:
    """Packages that may be imported in some places only. `at_import`: an import inside a function is fine everywhere."""

    rule: str
    packages: tuple[str, ...]
    why: str
    only_in: tuple[str, ...] = ()
    never_in: tuple[str, ...] = ()
    at_import: bool = False


LIBRARIES = (
    Library(
        "torch",
        (
            "torch",
            "torchvision",
            "torchaudio",
            "torchao",
            "triton",
            "safetensors.torch",
            "accelerate",
            "lightning",
            "transformers",
        ),
        "torch is imported in worker/ only: every command that does not train must answer at once, and without torch",
        only_in=("worker/",),
    ),
    Library(
        "heavy",
        ("scipy", "altair", "vl_convert", "pyarrow", "pandas", "polars", "matplotlib", "pyspark"),
        "it takes long to import: import it inside the function that needs it",
        at_import=True,
    ),
    Library(
        "nvml",
        ("pynvml",),
        "NVML is asked in worker/measure/energy.py alone, inside a function: it is an extra, which most machines have not got",
        only_in=("worker/measure/energy.py",),
    ),
    Library(
        "numpy",
        ("numpy",),
        "these rooms are on the way of every command: import numpy inside the function that needs it",
        never_in=(
            "base/",
            "spec/",
            "records/",
            "launch/",
            "study/",
            "commands/",
            "cli/",
            "__init__.py",
            "__main__.py",
        ),
        at_import=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Door:
    """One effect and the files that may have it. A name covers what is below it.

    `*.name` is that method of anything not ours; `name()` is the call alone, where being handed the thing is fine.
    """

    effect: str
    names: tuple[str, ...]
    instead: str
    owners: Mapping[str, str] = field(default_factory=dict[str, str])  # path or folder/ -> the reason
    within: str = ""  # only files below this folder are looked at


DOORS = (
    Door(
        "process",
        (
            "subprocess", "multiprocessing", "torch.multiprocessing", "pty", "concurrent.futures.ProcessPoolExecutor",
            "os.fork", "os.forkpty", "os.execl", "os.execle", "os.execlp", "os.execlpe", "os.execv", "os.execve", "os.execvp",
            "os.execvpe", "os.spawnl", "os.spawnle", "os.spawnlp", "os.spawnlpe", "os.spawnv", "os.spawnve", "os.spawnvp",
            "os.spawnvpe", "os.posix_spawn", "os.posix_spawnp", "asyncio.create_subprocess_exec",
            "asyncio.create_subprocess_shell", "os.kill", "os.killpg",
        ),
        "launch/supervise.py alone starts, watches and ends processes",
        {
            "launch/supervise.py": "the door",
            "launch/warm.py": "the warm process that supervise has ranks forked from; it lives as long as its command",
            "worker/world/amx.py": "a product that may end its process is tried in a child, which is over before the next line runs",
            "worker/zygote.py": "forks ranks: it is what supervise asks, where torch is imported already",
            "launch/command.py": "short questions to other programs: over before the next line runs",
            "records/fingerprint.py": "asks git which commit this is",
            "worker/spawn.py": "launcher=spawn means torch's own mother process, which is what is being measured",
            "commands/cluster.py": "`cluster on NODE` becomes the command it was given: exec, with the user's own terminal",
            "worker/tasks/": "a DataLoader starts its workers, and has to be told how",
            "worker/kernels/build.py": "asks the machine's C++ compiler for a library, once a machine",
        },
    ),
    Door(
        "environment",
        ("os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"),
        "the environment is read in one file a side: base/environment.py in the parent, worker/world/env.py in the worker",
        {
            "base/environment.py": "the parent's door; where the user's caches are is asked here too, whichever side asks",
            "worker/world/env.py": "the worker's door: who a rank is, and what libraries insist on reading there",
        },
    ),
    Door(
        "clock",
        (
            "time.perf_counter", "time.perf_counter_ns", "time.process_time", "time.process_time_ns", "time.thread_time",
            "time.thread_time_ns", "timeit", "torch.cuda.Event",
        ),
        "measurements are taken by worker/measure/clock.py",
        {"worker/measure/clock.py": "the door", "worker/measure/timeline.py": "the same clock for work that is queued on a GPU"},
    ),
    Door(
        "clock",
        ("time.monotonic", "time.monotonic_ns"),
        "durations come from worker/measure/clock.py; in the parent, supervise measures and commands and studies show progress",
        {
            "worker/measure/clock.py": "the door",
            "launch/supervise.py": "wall time of a run, and timeouts",
            "launch/slurm/wait.py": "how long a job has been silent",
            "worker/world/reach.py": "deadlines of connections; it measures nothing",
            "study/": "progress and the time that is left",
            "commands/": "progress",
        },
    ),
    Door(
        "clock",
        ("time.time", "time.time_ns"),
        "in the worker, the time of day comes from worker/measure/clock.py too",
        {"worker/measure/clock.py": "the door"},
        within="worker/",
    ),
    Door(
        "process group",
        ("*.init_process_group", "*.destroy_process_group"),
        "the process group is joined and left in worker/world/join.py",
        {"worker/world/join.py": "the door"},
    ),
    Door(
        "files",
        (
            "*.write_text", "*.write_bytes", "*.touch", "*.unlink", "*.rmdir", "*.symlink_to", "*.hardlink_to", "tempfile",
            "shutil.rmtree", "shutil.move", "shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree",
            "os.replace", "os.rename", "os.remove", "os.unlink", "os.rmdir", "os.fdopen", "os.truncate",
            "numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt", "*.tofile",
            "open to write",  # what check.py calls open(..., "w") in any of its forms
        ),
        "files are written through base/files.py: whole or not at all",
        {"base/files.py": "the door", "worker/resilience/": "tensors, which are too big to pass through memory twice"},
    ),
    Door(
        "tensors",
        ("safetensors.torch.save_file", "safetensors.numpy.save_file", "safetensors.serialize_file"),
        "tensors are written in worker/resilience/",
        {"worker/resilience/": "the door"},
    ),
    Door(
        "seed",
        (
            "torch.manual_seed", "torch.seed", "torch.random", "torch.default_generator", "torch.set_rng_state",
            "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "numpy.random.seed", "numpy.random.set_state", "random.seed",
            "random.setstate",
        ),
        "the global generators are seeded in worker/world/seed.py; anything else takes a generator of its own",
        {"worker/world/seed.py": "the door"},
    ),
    Door(
        "stdout",
        (
            "builtins.print", "sys.stdout", "sys.__stdout__", "rich.print", "rich.get_console", "rich.console.Console()",
            "typer.echo", "typer.secho", "click.echo", "click.secho",
        ),
        "stdout belongs to cli/ and report/terminal.py: with --json nothing else may be on it",
        {
            "cli/": "the door",
            "report/terminal.py": "the door for tables and progress",
            "worker/rank.py": "flushes what the user's task printed before it leaves; a worker's stdout is its log",
            "worker/zygote.py": "flushes what libraries printed while they were imported: every forked rank would write it again",
        },
    ),
    Door(
        "forbidden",
        (
            "pickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "torch.load", "torch.save",
            "*.all_gather_object", "*.gather_object", "*.scatter_object_list", "*.broadcast_object_list",
            "*.send_object_list", "*.recv_object_list", "allow_pickle=True",
        ),
        "pickle runs code from a file; use JSON and safe tensors",
    ),
    Door(
        "forbidden",
        (
            "builtins.eval", "builtins.exec", "os.system", "os.popen", "shell=True", "yaml.load", "yaml.load_all",
            "yaml.unsafe_load", "yaml.full_load", "typ='unsafe'",
        ),
        "it runs text as code",
    ),
)  # fmt: skip

MAX_LINES = 300
# path -> (lines, reason). Empty, and meant to stay so: a file over the limit holds two concepts.
LONG_FILES: Mapping[str, tuple[int, str]] = {}

MAX_CLASS_LINES = 200
MAX_FUNCTION_LINES = 60
MAX_ARGUMENTS = 7  # self and cls not counted
MAX_CPP_LINES = 400  # of a C++ source or header
# Functions whose arguments are not counted: folder -> the reason. Only public functions: what they call is code like any other.
COMMANDS: Mapping[str, str] = {
    "cli/": "typer makes an option of the command line of each argument, so a command has as many as it has options",
}
# "path name" -> (limit, the day it was granted, reason). Meant to be empty: each is a piece of work not done yet.
LARGE: Mapping[str, tuple[int, str, str]] = {
    "worker/transform/few_channels.py _backward": (
        11,
        "2026-11-16",
        "it stands in for torch's operator, and has its arguments",
    ),
}

# Names that say nothing, so that everything ends up in them; also refused as a word of a class name.
EMPTY_WORDS = frozenset(
    {"util", "utils", "helper", "helpers", "common", "misc", "manager", "engine", "handler", "context", "trainer"}
)

# Settings of a library that it means to be assigned to; any other assignment to an imported module is monkeypatching.
FLAGS = ("torch.backends", "torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")

# Files that may do something when they are imported.
ENTRY_POINTS: Mapping[str, str] = {
    "__main__.py": "python -m paceline",
    "worker/__main__.py": "python -m paceline.worker",
}
