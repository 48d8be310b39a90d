"""Named batches, and models that compute their own loss: what is taken from them, and what is not certain enough to be taken."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.base.errors import RunFailed
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score


class Named(torch.nn.Module):
    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None, **more: Any) -> Any:
        return {"ids": input_ids, "mask": attention_mask, "labels": labels, **more}


class Whole(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x


BATCH = {"input_ids": torch.ones(2, 3), "labels": torch.zeros(2)}


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_batch_goes_in_by_its_names(kind: Any) -> None:
    found = usual_forward(Named(), kind(BATCH))
    assert found["ids"] is BATCH["input_ids"] and found["labels"] is BATCH["labels"] and found["mask"] is None


def test_a_batch_with_other_names_goes_in_whole() -> None:
    """What a forward does with named parts is its own, unless they are its parameters."""
    assert usual_forward(Whole(), BATCH) is BATCH
    other = {"x": torch.ones(2), "y": torch.ones(2)}
    assert usual_forward(Whole(), other) is other
    assert usual_forward(Whole(), {"x": other["x"]}) is other["x"]


def test_a_part_that_would_be_swallowed_is_refused() -> None:
    with pytest.raises(RunFailed, match=r"has idx, text, which the model's forward has no parameter for, beside 2"):
        usual_forward(Named(), {**BATCH, "idx": 1, "text": "a"})


def test_torchs_compiler_follows_the_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # the compiler sets it

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, labels: Any = None) -> Any:
            return {"loss": x.mean(), "logits": x}

    def whole(batch: Any) -> Any:
        return usual_loss(usual_forward(model, batch), batch)

    model = Model()
    batch = {"x": torch.ones(2, 3), "labels": torch.zeros(2)}
    assert float(torch.compile(whole, backend="eager", fullgraph=True)(batch)) == 1.0


LOGITS = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])


def test_a_models_own_loss_is_taken_as_it_is_and_its_logits_are_scored() -> None:
    loss = torch.tensor(0.5)
    labels = torch.tensor([0, -100, 1])
    assert usual_loss({"loss": loss, "logits": LOGITS}, {"labels": labels}) is loss
    hits, counted = usual_score({"loss": loss, "logits": LOGITS}, {"labels": labels})["accuracy"]
    assert (int(hits), int(counted)) == (1, 2)
    far, num = usual_score({"logits": LOGITS[:, :1]}, {"labels": torch.zeros(3)})["mae"]
    assert (float(far), num) == (4.0, 3)


@pytest.mark.parametrize(
    ("outputs", "batch"),
    [
        # a language model shifts its labels, a tagger does not: nothing tells them apart
        ({"logits": torch.zeros(3, 5, 7)}, {"labels": torch.zeros(3, 5, dtype=torch.long)}),
        ({"logits": LOGITS}, {"label": torch.zeros(3, dtype=torch.long)}),
        ({"logits": LOGITS}, (LOGITS, torch.zeros(3, dtype=torch.long))),
        ({"logits": LOGITS[:2]}, {"labels": torch.zeros(3, dtype=torch.long)}),
        ({"logits": None}, {"labels": None}),
    ],
)
def test_what_is_not_certain_is_no_score(outputs: Any, batch: Any) -> None:
    assert usual_score(outputs, batch) == {}


@pytest.mark.parametrize("outputs", [{"loss": None, "logits": LOGITS}, {"loss": LOGITS}, {"logits": LOGITS}])
def test_without_a_loss_of_one_number_the_task_must_define_it(outputs: Any) -> None:
    with pytest.raises(RunFailed, match=r"define it"):
        usual_loss(outputs, BATCH)
