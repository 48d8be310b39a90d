"""Containers come out as what they were: dicts with attributes, dataclasses, named tuples, mappings, a library's own outputs."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from paceline.base.errors import RunFailed
from paceline.worker.tasks.tree import flat, leaves_of, mapped, tensors_of
from paceline.worker.transform.flow import full

HALF = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)


@dataclass
class Output(OrderedDict[str, Any]):
    """As transformers makes its outputs: a dict of what is there, with attributes of the same names."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        for name in ("loss", "logits"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self) -> Any:
        return type(self), (self.loss, self.logits)


@dataclass(frozen=True, slots=True)
class Frozen:
    mean: torch.Tensor
    name: str = "gaussian"
    made: int = field(init=False, default=7)


class Point(NamedTuple):
    x: torch.Tensor
    y: Any


class Batch(UserDict[str, Any]):
    """As a BatchEncoding: a UserDict with something of its own beside it."""

    def __init__(self, data: dict[str, Any], encodings: Any = None) -> None:
        super().__init__(data)
        self.encodings = encodings


class OwnMapping(Mapping[str, Any]):
    """Holds what it shows in a dict of its own, which a shallow copy shares."""

    def __init__(self, **values: Any) -> None:
        self.values_by_name = values

    def __getitem__(self, key: str) -> Any:
        return self.values_by_name[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


class Thing:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.inner, self.number = tensor, {"again": tensor}, 3


class Copied(Thing):
    def __copy__(self) -> Copied:
        return Copied(self.tensor)


class Boxes(list[Any]):
    pass


def test_an_output_with_attributes_keeps_its_kind_and_both_ways_to_its_tensors() -> None:
    made = full(Output(loss=HALF.sum(), logits=HALF))
    assert type(made) is Output
    assert made.loss.dtype == made["loss"].dtype == torch.float32
    assert made.logits is made["logits"] and made.logits.tolist() == [1.5, -2.0]
    assert list(full(Output(logits=HALF))) == ["logits"], "what is absent stays absent"


def test_every_container_comes_out_as_its_own_kind() -> None:
    boxes = Boxes([HALF])
    boxes.label = "two"  # type: ignore[attr-defined]
    values: list[Any] = [
        {"a": HALF}, [HALF], (HALF, None), Point(HALF, "word"), OrderedDict(a=HALF), defaultdict(list, a=HALF),
        Batch({"a": HALF}, encodings=[1]), Frozen(HALF), OwnMapping(a=HALF, b="word"), boxes, Thing(HALF),
        torch.return_types.max((HALF, torch.tensor([0, 1]))),
    ]  # fmt: skip
    for value in values:
        made = full({"deep": [value]})["deep"][0]
        assert type(made) is type(value)
        assert {tensor.dtype for tensor in tensors_of(made) if tensor.is_floating_point()} == {torch.float32}
        assert {tensor.dtype for tensor in tensors_of(value) if tensor.is_floating_point()} == {torch.bfloat16}, (
            "the original is as it was"
        )
    assert full(values[6]).encodings == [1] and full(values[5]).default_factory is list
    assert (full(values[7]).name, full(values[7]).made) == ("gaussian", 7)
    assert full(values[8])["b"] == "word" and full(values[9]).label == "two" and full(values[10]).number == 3


def test_distributions_and_caches_are_looked_into() -> None:
    normal = full({"z": torch.distributions.Normal(HALF, HALF.abs())})["z"]
    assert isinstance(normal, torch.distributions.Normal) and normal.sample().dtype == torch.float32
    independent = full(torch.distributions.Independent(torch.distributions.Normal(HALF, HALF.abs()), 1))
    assert independent.base_dist.loc.dtype == torch.float32


def test_what_cannot_be_made_anew_is_refused_and_only_where_something_changes() -> None:
    with pytest.raises(RunFailed, match=r"a Copied holds tensors .*__copy__ of its own.*return its tensors in a dict"):
        full([Copied(HALF)])
    kept = Copied(HALF.float())
    assert full([kept])[0] is kept
    assert next(tensors_of(Copied(HALF))) is HALF, "looking into it is always possible"


def test_leaves_and_their_form() -> None:
    value = {"a": Point(HALF, 3), "b": [OrderedDict(logits=HALF), None], "c": Thing(HALF)}
    leaves, form = flat(value)
    assert [type(leaf).__name__ for leaf in leaves] == ["Tensor", "int", "Tensor", "NoneType", "Thing"]
    assert all(one is other for one, other in zip(leaves, leaves_of(value), strict=True))
    again = form.of(leaf + 1 if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)
    assert again["a"].x.tolist() == [2.5, -1.0] and again["a"].y == 3 and type(again["b"][0]) is OrderedDict
    assert again["b"][0]["logits"].tolist() == [2.5, -1.0] and again["c"] is value["c"]
    assert [tensor is HALF for tensor in tensors_of(value)] == [True] * 4


def test_other_leaves_and_objects_that_are_not_opened() -> None:
    seen: list[Any] = []
    mapped(torch.clone, [HALF, "word", Thing(HALF)], seen.append, opens=False)
    assert [type(leaf).__name__ for leaf in seen] == ["str", "Thing"]


def test_a_packed_sequence_keeps_its_sizes() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(1)])
    made = mapped(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, packed)
    assert type(made) is type(packed) and made.data.dtype == torch.float64
    assert made.batch_sizes.equal(packed.batch_sizes)


def test_outputs_of_transformers_stay_what_they_are() -> None:
    pytest.importorskip("transformers")
    from transformers import BatchEncoding
    from transformers.cache_utils import DynamicCache
    from transformers.modeling_outputs import CausalLMOutputWithPast

    cache = DynamicCache()
    cache.update(HALF.view(1, 1, 1, 2), HALF.view(1, 1, 1, 2), 0)
    output = CausalLMOutputWithPast(loss=HALF.sum(), logits=HALF, past_key_values=cache, hidden_states=(HALF, HALF))
    made = full(output)
    assert type(made) is CausalLMOutputWithPast and type(made.past_key_values) is DynamicCache
    assert {tensor.dtype for tensor in tensors_of(made)} == {torch.float32}
    assert {tensor.dtype for tensor in tensors_of(output)} == {torch.bfloat16}
    assert made.loss.dtype == torch.float32 and made[1] is made.logits and made.attentions is None
    batch = full(BatchEncoding({"input_ids": torch.ones(2, 3, dtype=torch.int64), "mask": HALF}))
    assert type(batch) is BatchEncoding and batch["mask"].dtype == torch.float32 and batch.input_ids.shape == (2, 3)
