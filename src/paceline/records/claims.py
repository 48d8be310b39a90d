"""Every claim of the five reports with its verdict, in one table: plain data, for the page that shows all studies together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Claim:
    """`of`: the part of a report; empty for a claim of our own. `study`: where it was judged; empty where none can yet."""

    of: str
    claim: str
    verdict: str
    why: str
    study: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one study: its claims, or why it did not run at all."""

    name: str
    claims: tuple[Claim, ...] = ()
    headline: str = ""
    why: str = ""
    page: str = ""  # its report, from where the overview lies
    changed: str = ""  # on the command line
    num_failed: int = 0

    def plain(self) -> dict[str, Any]:
        return {
            "study": self.name, "why": self.why or None, "headline": self.headline, "page": self.page, "changed": self.changed,
            "claims": [{"report": c.of or None, "claim": c.claim, "verdict": c.verdict, "why": c.why} for c in self.claims],
        }  # fmt: skip
