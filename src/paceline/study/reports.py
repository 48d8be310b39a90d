"""The five reports part by part: what they are called, and the claims that no study of ours can judge yet."""

from __future__ import annotations

from importlib.resources import files

from pydantic import Field, TypeAdapter

from paceline.spec import yaml
from paceline.spec.values import Frozen


class Part(Frozen):
    """`claims`: those without a study, which wait for something."""

    id: str
    title: str
    waits_for: str = ""
    claims: list[str] = Field(default_factory=list[str])


def parts() -> list[Part]:
    name = "reports.yaml"
    text = files("paceline.study").joinpath(name).read_text(encoding="utf-8")
    return TypeAdapter(list[Part]).validate_python(yaml.read(text, path=name).value)
