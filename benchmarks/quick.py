"""How long each shipped study's quick version takes from the command to the report: it should stay under two minutes on two cores.

    python benchmarks/quick.py [NAME ...] [--json]

One run each, absolute seconds: a limit people wait for, not a claim of speed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from paceline.commands.study import shipped

LIMIT_S = 120


def seconds(name: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "paceline", "study", name, "--quick", "--json", "--out", f"{folder}/study"]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(shipped()))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = {name: seconds(name) for name in asked.names}
    if asked.json:
        print(json.dumps({"schema": 1, "limit_s": LIMIT_S, "cores": os.cpu_count(), "wall_s": found}, indent=1))
        return
    for name, wall in found.items():
        print(f"{name:20} {wall:6.1f} s  {'under' if wall < LIMIT_S else 'OVER'} {LIMIT_S} s on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
