"""Tasks that end, or never end, in the middle of training: their third forward pass in a rank is the last thing they do. Two of them end
while they are looked into."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from good import Good


class _Dies(Good):
    def __init__(self) -> None:
        self.passes = 0

    def forward(self, model, batch):
        self.passes += self.counts()
        if self.passes == 3:
            self.end()
        return model(batch[0])

    def counts(self):
        return "PACELINE_RANK" in os.environ

    def end(self):
        raise NotImplementedError


class Raises(_Dies):
    def end(self):
        raise ValueError("the third batch is cursed")


class RaisesOnRankOne(_Dies):
    def end(self):
        if os.environ["PACELINE_RANK"] == "1":
            raise ValueError("only here")


class RaisesUnprintable(_Dies):
    """A message as `os.fsdecode` makes it of a file name that is no text."""

    def end(self):
        raise ValueError("cannot read \udcff.png")


class RaisesManyLines(_Dies):
    def end(self):
        raise ValueError("first\n\n" + "and more\n" * 500)


class RaisesInterrupt(_Dies):
    def end(self):
        raise KeyboardInterrupt


class RaisesInTest(_Dies):
    """Its evaluation comes after two steps (steps=2)."""

    def end(self):
        raise ValueError("the test set is cursed")


class CallsExit(_Dies):
    def end(self):
        sys.exit(5)


class LeavesQuietly(_Dies):
    def end(self):
        os._exit(0)


class LeavesLoudly(_Dies):
    def end(self):
        os._exit(3)


class KillsItself(_Dies):
    def end(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Segfaults(_Dies):
    def end(self):
        os.kill(os.getpid(), signal.SIGSEGV)


class Aborts(_Dies):
    def end(self):
        os.abort()


class Hangs(_Dies):
    def end(self):
        time.sleep(600)


class HangsHard(_Dies):
    """It does not listen to a polite request, and neither does its child."""

    def end(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.run(["sleep", "600"])


class KillsTheLook(KillsItself):
    def counts(self):
        return True


class HangsTheLook(Hangs):
    def counts(self):
        return True


class LeavesChild(_Dies):
    def end(self):
        subprocess.Popen(["sleep", "600"])
        raise ValueError("left a child behind")


class LeavesDaemon(_Dies):
    """A child in a session of its own, as the services of logging libraries are."""

    def end(self):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        raise ValueError("left a daemon behind")
