"""What the short `describe` job found out about a task and its GPUs, for the rules and for the parent's parsing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from paceline.spec.tasks import Param

DataKind = Literal["tensors", "mapped", "dataset", "stream"]


@dataclass(frozen=True, slots=True)
class DataFacts:
    """tensors: in memory, batched by one indexed copy; dataset: map-style, through a loader; stream: an IterableDataset."""

    kind: DataKind
    num: int | None  # None: a stream without a length


@dataclass(frozen=True, slots=True)
class TaskFacts:
    params: tuple[Param, ...]
    values: dict[str, Any]
    defaults: dict[str, Any]
    takes_data: bool
    train: DataFacts
    test: DataFacts
    num_parameters: int
    knows_better: bool  # which way its score is good: a target needs that
    source_sha256: str | None  # the task's file and its modules
    layers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    capability: tuple[int, int] | None = None  # of the GPUs torch sees here, the least; None: none
    has_tensor_plan: bool = False  # it says how its layers are cut over ranks
    has_optimizer: bool = False  # it builds its own
    has_schedule: bool = False
    has_step: bool = False  # it makes its own steps, with several optimizers
    sets_by_step: bool = False  # on_step or on_epoch
    num_tables: int = 0  # nn.Embedding
    probe: dict[str, Any] | None = None  # how its loss and scores recombine (`spec/verdict.py`)
    probe_s: float = 0.0
    inputs: dict[str, Any] | None = None  # what it depends on beside its settings (`spec/inputs.py`)
    num_sparse: int = 0  # of them, those whose gradients are sparse

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """The shapes of torch's own linear layers, (out, in)."""
        return tuple((*layer["shapes"][0],) for layer in self.layers if layer["type"] == "Linear" and layer["shapes"])

    def plain(self) -> dict[str, Any]:
        return {"schema": 1, **asdict(self)}

    @classmethod
    def load(cls, value: dict[str, Any]) -> TaskFacts:
        value = {k: v for k, v in value.items() if k != "schema"}
        value["params"] = tuple(Param(**p) for p in value["params"])
        value["train"], value["test"] = DataFacts(**value["train"]), DataFacts(**value["test"])
        if value.get("capability") is not None:
            value["capability"] = tuple(value["capability"])
        return cls(**value)
