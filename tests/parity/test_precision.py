"""Half formats on two ranks: one model, in the format that was asked for, near what any other format trains."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file

import paceline

UNEVEN = Path(__file__).parent / "uneven.py"
FORMATS = {"fp16": ("float32", "float16"), "bf16-pure": ("bfloat16", "bfloat16")}


def test_two_ranks_train_one_model(tmp_path: Path) -> None:
    """That the ranks end with the same weights is part of `completed`; bf16 rounds at 4e-3, so the formats end that close."""
    weights = {}
    for precision, (parameters, computed) in FORMATS.items():
        record = paceline.run(
            str(UNEVEN), out=tmp_path / precision, on="1x2", precision=precision, device="cpu", threads=1, optimizer="sgd", lr=0.1,
            epochs=1,
        )  # fmt: skip
        assert record.completed, record.why
        assert record["applied"]["precision"] == precision
        assert record["applied"]["dtypes"] == {"parameters": [parameters], "compute": [computed]}
        assert record.test["evaluated"] == record.test["of"]
        model = paceline.load(tmp_path / precision)
        assert {str(parameter.dtype) for parameter in model.parameters()} == {f"torch.{parameters}"}
        weights[precision] = load_file(record["weights"])
    for name, values in weights["fp16"].items():
        far = float((values.double() - weights["bf16-pure"][name].double()).norm() / values.double().norm())
        assert 0 < far < 0.02, name
