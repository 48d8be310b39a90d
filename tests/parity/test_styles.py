"""Tasks in the styles that people write them in (`tests/e2e/tasks/styles`): on one process and on two each ends with the weights and scores
of its plain loop (fp64, 1e-10), or warns that it is another model or draws other numbers, or is refused; the table says which."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from parity.compared import HERE, Case, compared

pytestmark = pytest.mark.timeout(300)

STYLES = HERE.parent / "e2e" / "tasks" / "styles"
NEEDS = ("transformers", "datasets", "pandas", "polars", "lightning")
EXCUSES = {"batchnorm", "draws"}  # warnings: another model, other random numbers, than on one process

EQUAL = "equal"
# Without Adam: a bias whose gradient is nothing but rounding (of keys, or before a norm) would be moved by all of its rate.
PLAIN: dict[str, Any] = {"optimizer": "sgd", "lr": 0.1}
# file and class, settings and parameters, what must become of it on one process and on two: `equal`, `warns KIND` (of EXCUSES; the figures
# may then differ), or words of the refusal
TABLE: list[tuple[str, dict[str, Any], str, str]] = [
    ("autoencoder_noise.py", {}, EQUAL, EQUAL),
    ("bert.py", {}, EQUAL, "warns draws"),
    ("bert.py", {"dropout": 0.0, **PLAIN}, EQUAL, EQUAL),
    ("clip.py:InTheLoss", {}, EQUAL, EQUAL),
    ("clip.py:OpenClip", {}, EQUAL, "no outputs that ranks could gather"),
    ("clip.py:OpenAI", {}, EQUAL, "depend on the samples beside it"),
    ("ctc_speech.py", {"lr": 0.1}, EQUAL, EQUAL),
    ("detection.py:Means", {"lr": 0.1}, EQUAL, EQUAL),
    ("detection.py:Torchvision", {"lr": 0.1}, EQUAL, EQUAL),
    ("diffusion.py:Drawn", {}, EQUAL, "warns draws"),
    ("diffusion.py:ByKey", {}, EQUAL, EQUAL),
    ("distillation.py", {}, EQUAL, EQUAL),
    ("finetune.py", {}, EQUAL, EQUAL),
    ("finetune.py", {"cycled": True}, "moves momentum of group 0", "moves momentum of group 0"),
    ("gan.py", {}, EQUAL, "warns draws"),
    ("gnn.py", {}, EQUAL, EQUAL),
    ("gpt.py:Counted", PLAIN, EQUAL, EQUAL),
    ("gpt.py:Given", {}, EQUAL, "no outputs that ranks could gather"),
    ("hf_dataset.py", PLAIN, EQUAL, EQUAL),
    ("imbalanced.py", {"lr": 0.1}, EQUAL, EQUAL),
    ("lightning_module.py", {}, EQUAL, EQUAL),
    ("lstm.py", {}, EQUAL, EQUAL),
    ("multilabel.py", {}, EQUAL, EQUAL),
    ("polars_frame.py", {}, EQUAL, EQUAL),
    ("recommender.py", {}, EQUAL, EQUAL),
    ("resnet.py", {}, EQUAL, "warns batchnorm"),
    ("resnet.py", {"buffers": "sync"}, EQUAL, EQUAL),
    ("simclr.py:Drawn", {}, EQUAL, "warns draws"),
    ("simclr.py:ByKey", PLAIN, EQUAL, EQUAL),
    ("time_series.py", {}, EQUAL, EQUAL),
    ("titanic.py", {}, EQUAL, EQUAL),
    ("transformer_tagging.py:Counted", PLAIN, EQUAL, EQUAL),
    ("transformer_tagging.py:Padded", {"to": 9, **PLAIN}, EQUAL, EQUAL),
    ("transformer_tagging.py:Padded", {"to": 9, "dropout": 0.1}, EQUAL, "warns draws"),
    ("transformer_tagging.py:Padded", {}, EQUAL, "padded to the longest"),
    ("transformer_tagging.py:RarelyLonger", {}, EQUAL, "other shapes on other ranks"),
    ("transformer_tagging.py:LongerAtTheEnd", {}, "all of one shape", "all of one shape"),
    ("triplet.py", {}, EQUAL, EQUAL),
    ("unet.py", {"lr": 0.05}, EQUAL, EQUAL),
    ("vae.py", {}, EQUAL, "warns draws"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The styles, with the files that some of them read beside them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in NEEDS:
            pytest.importorskip(name)
    made = tmp_path_factory.mktemp("styles")
    shutil.copytree(STYLES, made / "styles", ignore=shutil.ignore_patterns("__pycache__"))
    write_files(made / "styles")
    return made


def test_every_style_is_in_the_table() -> None:
    assert {task.partition(":")[0] for task, *_ in TABLE} == {path.name for path in STYLES.glob("*.py")}


@pytest.mark.parametrize("size", [1, 2])
def test_equal_to_the_plain_loop_or_what_the_table_says(folder: Path, size: int) -> None:
    rows = compared([(str(folder / "styles" / task), settings) for task, settings, *_ in TABLE], folder, size)
    problems = [
        problem
        for row, (*_, alone, on_two) in zip(rows, TABLE, strict=True)
        if (problem := judged(row, alone if size == 1 else on_two))
    ]
    assert not problems, "\n".join(problems)


def judged(row: Case, wanted: str) -> str | None:
    verb, _, kind = wanted.partition(" ")
    if verb not in (EQUAL, "warns"):
        return None if wanted in row.refused else f"{row}: not refused with {wanted!r}: {row.refused or 'computed'}"
    if row.refused or row.unknown:
        return f"{row}: {row.refused or row.unknown}"
    if verb == "warns":
        return None if kind in row.warnings else f"{row}: no warning of the kind {kind}: {row.warnings}"
    if excuses := EXCUSES & set(row.warnings):
        return f"{row}: warns of {excuses}, and must be equal"
    return f"{row}: {row.wrong}" if row.wrong else None


def write_files(folder: Path) -> None:
    """Tables as people have them, from arithmetic: no generator of random numbers is the same in every version."""
    people = ["PassengerId,Survived,Name,Sex,Age,SibSp,Parch,Fare,Embarked"]
    for i in range(70):
        age = "" if i % 9 == 4 else str(5 + i * 7 % 60)
        sex = "female" if i * i % 7 < 3 else "male"
        survived = int((sex == "female") != (i % 11 == 0))
        people.append(f'{i},{survived},"Doe, Mr. {i}",{sex},{age},{i % 3},{i % 2},{7 + i * 13 % 50}.25,{"SCQ"[i % 3]}')
    (folder / "titanic.csv").write_text("\n".join(people) + "\n")

    houses = ["split,rooms,area,age,price"]
    for i in range(75):
        rooms, area, age = 1 + i % 5, 30 + i * 17 % 90, i * 7 % 40
        houses.append(
            f"{'test' if i % 4 == 1 else 'train'},{rooms},{area},{age},{0.5 * rooms + area / 50 - age / 40:.3f}"
        )
    (folder / "houses.csv").write_text("\n".join(houses) + "\n")

    from datasets import Dataset, disable_progress_bars

    words = ["".join("abcdefghijklmnopqrst"[(i * k + k) % 20] for k in range(2, 5 + i % 5)) for i in range(64)]
    labels = [int("e" in word) for word in words]
    rows = [f"{word},{label}" for word, label in zip(words[:44], labels[:44], strict=True)]
    (folder / "words.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    disable_progress_bars()
    Dataset.from_dict({"text": words[44:], "label": labels[44:]}).save_to_disk(str(folder / "words"))
