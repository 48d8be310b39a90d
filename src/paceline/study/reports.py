"""The five reports part by part: what they are called, and the claims that no study of ours can judge yet."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

from pydantic import Field, TypeAdapter

from paceline.spec import yaml
from paceline.spec.values import Frozen


class Fact(Frozen):
    """A claim that no figure can decide: what is so by construction, or follows from a rule. `why` names what shows it."""

    claim: str
    verdict: Literal["confirmed", "refuted", "not tested here"]
    why: str


class Part(Frozen):
    """`claims`: those without a study, which wait for something."""

    id: str
    title: str
    waits_for: str = ""
    claims: list[str] = Field(default_factory=list[str])
    facts: list[Fact] = Field(default_factory=list[Fact])


def parts() -> list[Part]:
    name = "reports.yaml"
    text = files("paceline.study").joinpath(name).read_text(encoding="utf-8")
    return TypeAdapter(list[Part]).validate_python(yaml.read(text, path=name).value)
