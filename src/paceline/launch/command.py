"""Short questions to other programs (sbatch, squeue, ip). Nothing that is started here outlives its answer."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from paceline.base.environment import variables
from paceline.base.errors import RunFailed


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def words(self) -> str:
        """What the program said went wrong, in one line."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return "; ".join(lines[:3])[:400] or f"exit code {self.code}"


def ask(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    unless_set: Mapping[str, str] | None = None,
    without: str | None = None,
    timeout_s: float = 30.0,
) -> Answer:
    """Run a program to its end; `env` is added to ours, `unless_set` only where we have no such variable.

    Variables whose name begins with `without` are kept from it: SBATCH_* would overrule the script it is given.

    A program that is not there, or does not answer, is a failed run.
    """
    ours = {name: value for name, value in variables().items() if without is None or not name.startswith(without)}
    try:
        done = subprocess.run(
            list(argv), env={**(unless_set or {}), **ours, **(env or {})}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=timeout_s,
        )  # fmt: skip
    except FileNotFoundError:
        raise RunFailed(f"{argv[0]}: no such program on this machine", kind="launch") from None
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{' '.join(argv[:2])} did not answer within {timeout_s:g} s", kind="launch") from None
    return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


@contextlib.contextmanager
def uninterrupted() -> Generator[None]:
    """Delays signals until the block has ended: for what must not be left half done (a job submitted and not written
    down)."""
    words = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, words)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
