"""On a GPU, too, a state that is put back goes on to the same bits: recorded and compiled steps know tensors by their place, and
random numbers come from the device's own stream."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch._dynamo

from paceline.worker.world.join import World
from round_trip import round_trip, spec_of, task

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "update": "foreach", "clip": 0.5},
    "adamw": {"optimizer": "adamw", "update": "single", "weight_decay": 0.1, "schedule": "onecycle"},
    "sgd": {"optimizer": "sgd", "update": "fused", "momentum": 0.9, "schedule": "cosine"},
    "rmsprop": {"optimizer": "rmsprop", "update": "foreach", "momentum": 0.5, "lr": 0.001},
}
COMPILED = {name: {**asked, "update": "foreach"} for name, asked in OPTIMIZERS.items() if name in ("adam", "sgd")}
GRAPHS: dict[str, dict[str, Any]] = {
    "eager": {},
    "captured": {"graph": "captured", "graph_of": "step"},
    "compiled": {"graph": "compile", "graph_of": "step"},
    "model": {"graph": "compile", "graph_of": "model"},
    "scaled": {"precision": "fp16"},
    "accelerate": {"precision": "fp16", "wrap": "accelerate"},
}
CASES = [
    *((graph, name) for graph in ("eager", "captured") for name in OPTIMIZERS),
    *(("compiled", name) for name in COMPILED),
    *((graph, "adam") for graph in ("model", "scaled", "accelerate")),
]


@pytest.mark.parametrize(("graph", "name"), CASES)
def test_what_is_put_back_goes_on_to_the_same_bits(
    graph: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    # where torch's compiler keeps things, said out loud: left to itself it writes that into the environment
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    torch._dynamo.reset()
    world = World(rank=0, size=1, local_rank=0, host="here", device=torch.device("cuda", 0), backend="gloo")
    optimizer = COMPILED[name] if graph == "compiled" else OPTIMIZERS[name]
    # A graph that is compiled anew is another one: torch chooses kernels by timing, and by the shapes that came first.
    fresh = GRAPHS[graph].get("graph") != "compile"
    row = round_trip(spec_of(**{"device": "cuda", **GRAPHS[graph], **optimizer}), world, task(), fresh=fresh)
    for variable in ("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "TRITON_PTXAS_PATH"):
        os.environ.pop(variable, None)
    assert row["moved"] and row["put back"] and row["kept"]
    assert row["equal"] and not row["different"], row["different"]
    assert row["step"]["graph"] == GRAPHS[graph].get("graph", "eager")
