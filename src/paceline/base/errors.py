"""The exception tree. Every error a user can cause is one of these; anything else is a defect of ours.

PacelineError
├── BadInput       what was asked cannot be done: all problems at once           exit code 2
├── RunFailed      a run was started and did not complete: a kind and a sentence  exit code 1
└── Interrupted    the user stopped it; nothing finished is lost                  exit code 130
"""

from __future__ import annotations

from collections.abc import Iterable


class PacelineError(Exception):
    """Root of everything we raise on purpose; printed as sentences, never as a traceback."""

    exit_code = 1


class BadInput(PacelineError):
    """One or more problems with what the user asked for, found before anything ran."""

    exit_code = 2

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class RunFailed(PacelineError):
    """A run (or a short job) was started and did not complete; `kind` is what scripts read."""

    exit_code = 1

    def __init__(self, why: str, *, kind: str = "error") -> None:
        self.kind = kind
        self.why = why
        super().__init__(why)


class Interrupted(PacelineError):
    """Ctrl-C, or a signal that asks us to leave."""

    exit_code = 130
