"""Each rule finds what it is for: one violation is planted in a small clean tree, and exactly that one must be reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from arch.check import check

CLEAN = {
    "__init__.py": '"""Public names."""\n',
    "cli/__init__.py": '"""Arguments."""\nfrom paceline.commands import run\n\n\ndef main():\n    print(run)\n',
    "base/__init__.py": '"""Ground."""\n',
    "base/files.py": '"""Disk."""\nimport os\n\n\ndef put(path):\n    path.write_text("x")\n    os.replace(path, path)\n',
    "spec/run.py": '"""Spec."""\nfrom paceline.base import files\n\nTABLE = {"a": files}\n',
    "records/record.py": '"""Record."""\nfrom paceline.spec.run import TABLE\n\n__all__ = ["TABLE"]\n',
    "base/environment.py": '"""Variables."""\nimport os\n\n\ndef variables():\n    return dict(os.environ)\n',
    "launch/supervise.py": '"""Processes."""\nimport subprocess, time\n\nX = (subprocess.run, time.monotonic)\n',
    "worker/kernels/sum.cpp": "// A sum.\n" * 400,
    "commands/run.py": '"""Use case."""\nfrom paceline.base import files\nimport paceline.launch.supervise\n\nX = files.write_text\n',
    "worker/jobs.py": '"""Jobs."""\nimport torch\nfrom paceline.worker.world import env\n\nUSED = (torch, env)\n',
    "worker/world/env.py": '"""Rank."""\nimport os\n\n\ndef rank():\n    return os.environ["RANK"]\n',
    "worker/world/seed.py": (
        '"""Seed."""\nimport torch\n\n\ndef seed(n):\n    torch.manual_seed(n)\n    torch.backends.cudnn.benchmark = False\n'
    ),
    "worker/resilience/weights.py": '"""Tensors."""\nfrom safetensors.torch import save_file\n\nUSED = save_file\n',
}

DOC = '"""A planted file."""\n'

# (file, text after the docstring, line, rule)
PLANTED = [
    ("commands/train.py", "def f():\n    import pynvml\n", 3, "nvml"),
    # rooms
    ("base/names.py", "from paceline.spec import run\n", 2, "rooms"),
    ("spec/load.py", "def f():\n    from paceline.records import record\n", 3, "rooms"),
    ("analysis/stats.py", "import paceline.report.terminal\n", 2, "rooms"),
    ("report/html.py", "from paceline.analysis import stats\n", 2, "rooms"),
    ("launch/local.py", "from paceline.study import order\n", 2, "rooms"),
    ("cli/__init__.py", "from paceline.launch import supervise\n", 2, "rooms"),
    ("commands/train.py", "from paceline.worker.jobs import train\n", 2, "rooms"),
    ("commands/train.py", "def f():\n    import paceline.worker.jobs\n", 3, "rooms"),
    ("study/execute.py", "import importlib\n\n\ndef f():\n    importlib.import_module('paceline.worker.jobs')\n", 6, "rooms"),
    ("study/execute.py", "from ..worker import jobs\n", 2, "rooms"),
    ("study/execute.py", "import paceline\n", 2, "rooms"),
    ("study/execute.py", "from paceline import load\n", 2, "rooms"),
    ("worker/tasks/vision.py", "from paceline.worker.world import env\n", 2, "rooms"),
    ("worker/world/join.py", "from paceline.worker.measure import clock\n", 2, "rooms"),
    ("worker/measure/probe.py", "from paceline.worker.loop import train\n", 2, "rooms"),
    ("worker/jobs.py", "from paceline.launch import supervise\n", 2, "rooms"),
    ("__init__.py", "from paceline.commands.run import run\n", 2, "rooms"),
    ("garden/path.py", "", 1, "plan"),
    ("zygote.py", "", 1, "plan"),
    # libraries
    ("analysis/stats.py", "import torch\n", 2, "torch"),
    ("commands/train.py", "def f():\n    from torch import nn\n", 3, "torch"),
    ("records/weights.py", "def f():\n    from safetensors.torch import load_file\n", 3, "torch"),
    ("analysis/stats.py", "from scipy import stats\n", 2, "heavy"),
    ("report/charts.py", "try:\n    import altair\nexcept ImportError:\n    altair = None\n", 3, "heavy"),
    ("records/steady.py", "import numpy as np\n", 2, "numpy"),
    # doors: a second one for each effect
    ("commands/train.py", "from subprocess import run\n", 2, "process"),
    ("worker/loop.py", "import os\n\n\ndef f():\n    os.fork()\n", 6, "process"),
    ("launch/local.py", "import os\n\n\ndef f():\n    return os.environ.get('HOME')\n", 6, "environment"),
    ("worker/loop.py", "from os import getenv as g\n", 2, "environment"),
    ("base/cache.py", "import os\n\n\ndef f():\n    return os.environ.get('HOME')\n", 6, "environment"),
    ("launch/supervise.py", "import os\n\n\ndef f():\n    return {**os.environ}\n", 6, "environment"),
    ("worker/loop.py", "import time\n\n\ndef f():\n    return time.perf_counter()\n", 6, "clock"),
    ("worker/loop.py", "import time\n\n\ndef f():\n    return time.monotonic()\n", 6, "clock"),
    ("worker/loop.py", "import time\n\n\ndef f():\n    return time.time()\n", 6, "clock"),
    ("analysis/stats.py", "import time\n\n\ndef f():\n    return time.monotonic()\n", 6, "clock"),
    ("worker/loop.py", "import torch.distributed as dist\n\n\ndef f():\n    dist.init_process_group('gloo')\n", 6, "process group"),
    ("report/html.py", "def f(path):\n    path.write_text('x')\n", 3, "files"),
    ("report/html.py", "def f(path):\n    open(path, 'w').close()\n", 3, "files"),
    ("report/html.py", "def f(path, mode):\n    open(path, mode).close()\n", 3, "files"),
    ("report/html.py", "def f(path):\n    path.open(mode='ab')\n", 3, "files"),
    ("report/html.py", "import gzip\n\n\ndef f(path):\n    gzip.open(path, 'wb')\n", 6, "files"),
    ("report/html.py", "def f(path):\n    (path / 'x').unlink()\n", 3, "files"),
    ("study/execute.py", "import shutil\n\n\ndef f(path):\n    shutil.rmtree(path)\n", 6, "files"),
    ("study/execute.py", "import tempfile\n", 2, "files"),
    ("worker/loop.py", "from safetensors.torch import save_file\n", 2, "tensors"),
    ("worker/loop.py", "import torch\n\n\ndef f():\n    torch.manual_seed(0)\n", 6, "seed"),
    ("planner/memory.py", "import numpy as np\n\n\ndef f():\n    np.random.seed(0)\n", 6, "seed"),
    ("commands/train.py", "def f():\n    print('x')\n", 3, "stdout"),
    ("worker/loop.py", "import sys\n\n\ndef f():\n    sys.stdout.write('x')\n", 6, "stdout"),
    ("study/execute.py", "from rich.console import Console\n\n\ndef f():\n    return Console()\n", 6, "stdout"),
    # forbidden everywhere, owners of doors included
    ("records/weights.py", "import pickle\n", 2, "forbidden"),
    ("worker/resilience/keep.py", "import torch\n\n\ndef f(x):\n    return torch.load(x)\n", 6, "forbidden"),
    ("worker/world/talk.py", "import torch.distributed as dist\n\n\ndef f(x):\n    dist.broadcast_object_list(x)\n", 6, "forbidden"),
    ("data/fetch.py", "import numpy as np\n\n\ndef f(x):\n    return np.load(x, allow_pickle=True)\n", 6, "forbidden"),
    ("spec/load.py", "def f(x):\n    return eval(x)\n", 3, "forbidden"),
    ("launch/local.py", "import os\n\n\ndef f(x):\n    os.system(x)\n", 6, "forbidden"),
    ("launch/supervise.py", "import subprocess\n\n\ndef f(x):\n    subprocess.run(x, shell=True)\n", 6, "forbidden"),
    ("spec/load.py", "import yaml\n\n\ndef f(x):\n    return yaml.load(x)\n", 6, "forbidden"),
    # shape
    ("spec/long.py", "X = 1\n" * 300, 301, "size"),
    ("study/execute.py", "class Runs:\n" + "    x = 1\n" * 200, 2, "class"),
    ("study/execute.py", "def f():\n" + "    x = 1\n" * 60, 2, "function"),
    ("study/execute.py", "class Runs:\n    async def f(self):\n" + "        x = 1\n" * 60, 3, "function"),
    ("study/execute.py", "def f(a, b, c, d, *, e, f, g, h):\n    pass\n", 2, "arguments"),
    ("study/execute.py", "class Runs:\n    @staticmethod\n    def f(a, b, c, d, e, f, g, h):\n        pass\n", 4, "arguments"),
    ("study/execute.py", "def f():\n    def g(a, b, c, d, e, f, g, /, h):\n        pass\n", 3, "arguments"),
    ("cli/study.py", "def _study(a, b, c, d, e, f, g, h):\n    pass\n", 2, "arguments"),
    ("spec/utils.py", "", 1, "name"),
    ("launch/helpers/local.py", "", 1, "name"),
    ("study/execute.py", "class RunManager:\n    pass\n", 2, "name"),
    # state, patches, work at import
    ("study/execute.py", "cache = {}\n", 2, "state"),
    ("study/execute.py", "N = 0\n\n\ndef f():\n    global N\n    N = 1\n", 6, "state"),
    ("study/execute.py", "SEEN = set()\n\n\ndef f(x):\n    SEEN.add(x)\n", 6, "state"),
    ("study/execute.py", "SEEN = {}\n\n\ndef f(x):\n    SEEN[x] = 1\n", 6, "state"),
    ("worker/loop.py", "import torch\n\n\ndef f(x):\n    torch.nn.Linear.forward = x\n", 6, "patch"),
    ("worker/loop.py", "import torch\n\n\ndef f(x):\n    setattr(torch, 'compile', x)\n", 6, "patch"),
    ("worker/loop.py", "import torch\n\ntorch.set_num_threads(1)\n", 4, "work"),
]  # fmt: skip


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_the_clean_tree_is_clean(tmp_path: Path) -> None:
    assert check(_tree(tmp_path, CLEAN)) == []


@pytest.mark.parametrize(("path", "text", "line", "rule"), PLANTED, ids=[f"{row[3]}-{row[0]}" for row in PLANTED])
def test_a_planted_violation_is_found(tmp_path: Path, path: str, text: str, line: int, rule: str) -> None:
    violations = check(_tree(tmp_path, CLEAN | {path: DOC + text}))
    assert {(row.path, row.line, row.rule) for row in violations} >= {(path, line, rule)}, violations
    # Nothing else is blamed: a rule that cries at its neighbours would be switched off before long.
    assert {row.path for row in violations} == {path}
    assert {row.rule for row in violations} == {rule}
    assert all(str(row).startswith(f"src/paceline/{path}:") and len(row.sentence) > 15 for row in violations)


def test_a_missing_docstring_is_found(tmp_path: Path) -> None:
    (violation,) = check(_tree(tmp_path, CLEAN | {"spec/key.py": "X = 1\n"}))
    assert (violation.path, violation.rule) == ("spec/key.py", "docstring")


def test_a_ring_of_imports_is_found_inside_functions_too(tmp_path: Path) -> None:
    ring = {
        "spec/a.py": DOC + "from paceline.spec.b import X\n",
        "spec/b.py": DOC + "X = 1\n\n\ndef f():\n    from paceline.spec import c\n    return c\n",
        "spec/c.py": DOC + "from paceline.spec import a\n",
    }
    (violation,) = check(_tree(tmp_path, CLEAN | ring))
    assert violation.rule == "cycle"
    assert violation.sentence.count(" -> ") == 3


def test_a_long_source_in_cpp_is_found(tmp_path: Path) -> None:
    (violation,) = check(_tree(tmp_path, CLEAN | {"worker/kernels/sum.h": "// A sum.\n" * 401}))
    assert (violation.path, violation.line, violation.rule) == ("worker/kernels/sum.h", 401, "c++")


def test_an_exception_lets_through_what_it_names_and_no_more(tmp_path: Path) -> None:
    tree = _tree(
        tmp_path,
        CLEAN | {"study/execute.py": DOC + "class Runs:\n    def f(self, a, b, c, d, e, f, g, h):\n        pass\n"},
    )
    granted = {"study/execute.py Runs.f": (8, "2026-01-01", "a reason")}
    assert check(tree, granted) == []
    assert check(tree, {"study/execute.py f": (8, "2026-01-01", "a reason")}) != []
    assert check(tree, {"study/execute.py Runs.f": (7, "2026-01-01", "a reason")}) != []


ALLOWED = [
    ("study/execute.py", "class Runs:\n    def f(self, a, b, c, d, e, f, g):\n" + "        x = 1\n" * 59),
    ("cli/study.py", "def study(a, b, c, d, e, f, g, h, i, j):\n    pass\n"),
    ("report/live.py", "from rich.console import Console\n\n\ndef f(console: Console):\n    return console\n"),
    ("__init__.py", "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from paceline.worker.load import load\n"),
    ("analysis/stats.py", "def f():\n    from scipy import stats\n\n    return stats\n"),
    ("analysis/stats.py", "import numpy as np\n\nX = np.float64\n"),
    ("records/fingerprint.py", "import subprocess\n\nX = subprocess.run\n"),
    ("report/html.py", "from paceline.base import files\n\n\ndef f(p):\n    files.write_text(p, 'x')\n    return p.open('rb'), open(p)\n"),
    ("worker/tasks/order.py", "import torch\n\n\ndef f(n):\n    g = torch.Generator()\n    g.manual_seed(n)\n    return g\n"),
    ("worker/loop.py", "import sys\n\n\ndef f(model):\n    model.eval()\n    print('x', file=sys.stderr)\n"),
    ("worker/loop.py", "import torch\n\n\ndef f():\n    torch.backends.cudnn.benchmark = True\n"),
    ("study/execute.py", "import time\n\n\ndef f(self):\n    self.t = time.monotonic()\n"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text"), ALLOWED, ids=[row[0] for row in ALLOWED])
def test_what_is_allowed_is_not_found(tmp_path: Path, path: str, text: str) -> None:
    assert check(_tree(tmp_path, CLEAN | {path: DOC + text})) == []
