"""The leak fixture of `tests/conftest.py` finds each kind of leak, and blames no clean test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

TESTS = """
import os, subprocess, sys, threading, time

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
ORPHAN = [sys.executable, "-c", f"import subprocess; subprocess.Popen({SLEEP!r})"]

def test_clean(monkeypatch):
    monkeypatch.setenv("CLEAN", "1")
    process = subprocess.Popen(SLEEP)
    process.kill()
    process.wait()

def test_variable():
    os.environ["LEAK"] = "1"

def test_child():
    globals()["kept"] = subprocess.Popen(SLEEP)

def test_orphan():
    subprocess.run(ORPHAN, check=True)

def test_thread():
    threading.Thread(target=time.sleep, args=(1.5,), name="leak").start()
"""


def test_each_leak_fails_its_own_test(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "dist"  # a folder whose tests start processes, so that orphans are looked for
    folder.mkdir(parents=True)
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST.read_text().replace("GRACE_S = 3.0", "GRACE_S = 0.5"))
    (folder / "test_leaky.py").write_text(TESTS)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-c", "/dev/null", "--rootdir",
            str(tmp_path), str(folder),
        ],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    blamed = re.findall(r"teardown of (test_\w+) _*\nthe test left behind: (\w+)", done.stdout)
    kinds = [("variable", "environment"), ("child", "process"), ("orphan", "process"), ("thread", "thread")]
    assert blamed == [(f"test_{name}", kind) for name, kind in kinds], done.stdout
