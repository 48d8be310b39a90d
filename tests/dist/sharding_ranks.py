"""The ranks of `test_sharding.py`: `python sharding_ranks.py FOLDER`. Every case at 2 and 3 ranks, some alone; JSON goes to FOLDER.

torch is imported once and the ranks are forked from there: three worlds for the price of one import. Each case is a whole training,
assembled and looped as in a real rank, beside the same training on one process, which every rank does for itself.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
import torch._dynamo  # the first optimizer would, in every rank
import torch.distributed as dist
from torch import nn

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.applied import check, check_steps, read_back
from paceline.worker.assemble import Parts, assemble
from paceline.worker.sharding.sharding import num_parameters
from paceline.worker.shared_data import load_data
from paceline.worker.loop import train
from paceline.worker.progress import Progress
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.observer import Observer
from paceline.worker.tasks.order import epoch_order, training_pieces
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.world.collectives import agree
from paceline.worker.world.join import World
from paceline.worker.zygote import warm

HERE = torch.device("cpu")
ALONE = World(rank=0, size=1, local_rank=0, host="here", device=HERE, backend="gloo")
# 33 samples in batches of 12: the last has 9, one of which is not counted.
NUM, BATCH, EPOCHS = 33, 12, 2


class Net(nn.Module):
    """Shapes no world divides, a block that is called twice, tied weights, a layer nobody uses, and one that some samples use."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(7, 5)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(5, 8),
                nn.BatchNorm1d(8) if norm else nn.LayerNorm(8),
                nn.Tanh(),
                nn.Dropout(0.0),
                nn.Linear(8, 5),
            )
            for _ in range(3)
        )
        self.unused = nn.Linear(5, 5)
        self.sometimes = nn.Linear(5, 5)
        self.wide = nn.Linear(5, 7, bias=False)
        self.head = nn.Linear(7, 3)
        self.tied = nn.Linear(7, 5, bias=False)
        self.tied.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = x[:, 0] > 1.0
        y = torch.tanh(self.first(x))
        for block in (*self.blocks, self.blocks[0]):
            y = y + block(y)
        if chosen.any():
            y = y + torch.where(chosen[:, None], self.sometimes(y), torch.zeros_like(y))
        z = torch.tanh(self.wide(y))
        return self.head(z + self.tied(z) @ self.tied.weight)


class Walked(nn.Module):
    """A sequence that is gone through: torch calls its layers, never itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 7), nn.Tanh())
        self.head = nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def task(model: Callable[[], nn.Module] = Net, **words: Any) -> Task:
    def data() -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.Generator().manual_seed(0)
        x, y = torch.randn(NUM, 7, generator=made), torch.randint(0, 3, (NUM,), generator=made)
        x[:, 0] = torch.where(torch.arange(NUM) % 11 == 4, 2.0, -x[:, 0].abs())
        y[::7] = -100
        return x, y

    return Task(
        name="case", model=model, train_data=data, test_data=data, forward=usual_forward, loss=usual_loss, score=usual_score,
        **words,
    )  # fmt: skip


class _Nobody:
    """An observer that writes nothing."""

    def write(self, event: Any) -> None: ...


def trained(what: Task, world: World, **asked: Any) -> tuple[Parts, dict[str, Any]]:
    """As `run_training` does it, less processes and files. Graphs are made by torch's quick compiler: the same graphs, without C++."""
    words: dict[str, Any] = {
        "on": f"1x{world.size}", "threads": 1, "device": "cpu", "update": "single", "weight_decay": 0.0, "batch": BATCH,
        "epochs": EPOCHS, "precision": "fp64", "lr": 0.05, "log_every": 1, "graph_of": "model", "messages": "backend", **asked,
    }  # fmt: skip
    spec = Spec(task=what.name, **words)
    parts = assemble(
        spec, what, load_data(spec, what, rank=world.rank), world, Stopwatch("startup"), (None, "not asked")
    )
    check(spec, read_back(parts))
    if spec.graph == "compile":
        torch._dynamo.reset()  # a process of a real run compiles one step only
        cast("Any", parts.step)._compiler.backend = "aot_eager"
    total = train(parts, Progress(parts, cast("Observer", _Nobody())))
    seen = {**read_back(parts), "accumulate": agree(parts.step.num_micro(), world)[1], "score": total.means()}
    if spec.remat != "none":
        seen["recomputed"] = agree(seen["recomputed"], world)[1]
    check_steps(spec, seen)
    return parts, seen


def whole(model: nn.Module) -> dict[str, torch.Tensor]:
    rows = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    return {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for name, tensor in rows.items()}


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest of any tensor; NaN where there is one."""
    assert one.keys() == other.keys(), (one.keys(), other.keys())
    pairs = [(one[name].double(), other[name].double()) for name in one]
    return float(torch.stack([(a - b).norm() / a.norm().clamp_min(1e-300) for a, b in pairs]).max())


class Ranks:
    """One world, and what the same settings give on one process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._alone: dict[str, tuple[dict[str, torch.Tensor], dict[str, Any], dict[str, torch.Tensor]]] = {}

    def alone(
        self, what: Task, **asked: Any
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any], dict[str, torch.Tensor]]:
        key = json.dumps([what.model.__qualname__, asked], sort_keys=True)
        if key not in self._alone:
            torch.manual_seed(123)
            start = whole(what.build_model().double())
            parts, seen = trained(what, ALONE, **asked)
            self._alone[key] = whole(parts.model), seen, start
        return self._alone[key]

    def parity(self, broadcast: dict[str, Any], what: Task | None = None, **asked: Any) -> dict[str, Any]:
        """How far apart the two trainings end, and what the spread one says of itself."""
        what = what or task()
        before = self.world.sent.num
        parts, seen = trained(what, self.world, **asked, **broadcast)
        mine = whole(parts.model)
        weights, reference, start = self.alone(what, **asked)
        return {
            "distance": distance(weights, mine),
            "loss": [reference["score"]["loss"], seen["score"]["loss"]],
            "clip": [reference["clip"], seen["clip"]],
            "unused": bool(mine["unused.weight"].equal(start["unused.weight"])) if "unused.weight" in start else None,
            "moved": distance({"": start["head.weight"]}, {"": weights["head.weight"]}),
            "exchange": seen["exchange"], "recomputed": seen.get("recomputed"),
            "applied": {name: seen[name] for name in ("sharding", "remat", "precision", "dtypes", "graph", "graph_of")},
            "traffic": parts.traffic.per_step(),
            "met": parts.arrivals.num, "sent": self.world.sent.num - before,
            "cut": sum(hasattr(parameter, "to_local") for parameter in parts.model.parameters()),
            "of": sum(1 for _ in parts.model.parameters()),
            "sizes": parts.memory.close(data_bytes=None)["sizes"],
            "communication_s": parts.watch.parts.get("communication", 0.0),
        }  # fmt: skip


SGD = {"optimizer": "sgd", "momentum": 0.9, "clip": 0.05}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.1, "clip": 0.05}


def _locally(ranks: Ranks) -> dict[str, Any]:
    """Local SGD written out: a model and an optimizer for every rank, one after the other, averaged every 2 steps and before a score."""
    size, every, what = ranks.world.size, 2, task()
    parts, seen = trained(what, ranks.world, sync_every=every, **ADAMW)
    x, y = what.train_data()
    models = []
    for _ in range(size):
        torch.manual_seed(123)
        models.append(what.build_model().double())
    updates = [torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1, foreach=False) for model in models]
    apart = 0

    def average() -> None:
        with torch.no_grad():
            for row in zip(*(model.parameters() for model in models), strict=True):
                mean = sum(parameter.detach() for parameter in row[1:]) + row[0].detach()
                for parameter in row:
                    parameter.copy_(mean / size)

    for epoch in range(EPOCHS):
        order = epoch_order(NUM, seed=123, epoch=epoch, shuffle=True)
        for step in range(-(-NUM // BATCH)):
            for rank, (model, update) in enumerate(zip(models, updates, strict=True)):
                piece = training_pieces(order, batch=BATCH, rank=rank, world_size=size)[step]
                update.zero_grad()
                total, count = usual_loss(model(x[piece.ids].double()), (None, y[piece.ids]))
                (total / count).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                update.step()
            apart += 1
            if apart == every:
                average()
                apart = 0
        if apart:
            average()
            apart = 0
    return {
        "distance": distance(whole(models[0]), whole(parts.model)), "exchange": seen["exchange"], "traffic": parts.traffic.per_step(),
        "met": parts.arrivals.num,
        "numbers": sum(parameter.numel() for parameter in parts.model.parameters()),
    }  # fmt: skip


def _idle(ranks: Ranks) -> dict[str, Any]:
    """Local SGD with a last batch of one sample: all but rank 0 make no update, and average."""
    parts, seen = trained(task(), ranks.world, sync_every=2, batch=NUM - 1, **SGD)
    return {
        "exchange": seen["exchange"],
        "one": agree(hash(tuple(whole(parts.model)["head.bias"].tolist())), ranks.world),
    }


def _half(ranks: Ranks, precision: str) -> dict[str, Any]:
    """FSDP's own policy: what flowed, what the weights are, and that BatchNorm keeps its numbers in fp32."""
    words = {"optimizer": "sgd", "precision": precision, "lr": 0.02}
    parts, seen = trained(task(lambda: Net(norm=True)), ranks.world, sharding="fsdp", **words)
    plain, reference = trained(task(lambda: Net(norm=True)), ranks.world, **words)
    return {
        "exchange": seen["exchange"], "dtypes": seen["dtypes"], "precision": seen["precision"],
        "state": sorted({str(tensor.dtype) for tensor in parts.model.state_dict().values() if tensor.is_floating_point()}),
        "distance": distance(whole(plain.model), whole(parts.model)), "loss": [reference["score"]["loss"], seen["score"]["loss"]],
    }  # fmt: skip


def _tokens(outputs: torch.Tensor, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss that counts hundreds to a sample, of each another number, as a language model's does."""
    tokens = 300.0 + 100.0 * (batch[1].abs() % 3)
    rows = nn.functional.cross_entropy(outputs.float(), batch[1].clamp_min(0), reduction="none")
    return (rows * tokens).sum(), tokens.sum()


def _half_sums(ranks: Ranks, precision: str) -> dict[str, Any]:
    """Half formats with accumulation, clipping and a loss that counts tokens: the updates, beside those of one process in one piece."""
    words = {"optimizer": "sgd", "clip": 0.5, "precision": precision, "epochs": 1}
    what = replace(task(), loss=_tokens)
    torch.manual_seed(123)
    start = {name: tensor.double() for name, tensor in whole(what.build_model()).items()}

    def moved(world: World, **asked: Any) -> tuple[torch.Tensor, Any]:
        parts, seen = trained(what, world, **words, **asked)
        weights = whole(parts.model)
        return torch.cat([(weights[name].double() - start[name]).flatten() for name in start]), seen

    alone, seen = moved(ALONE)
    rows: dict[str, Any] = {
        "moved": float(alone.norm()),
        "scaler": {"alone": seen.get("scaler")},
        "clip": {"alone": seen["clip"]},
    }
    for name, world, sharding in (
        ("accumulate", ALONE, "none"), ("none", ranks.world, "none"), ("ddp", ranks.world, "ddp"), ("fsdp", ranks.world, "fsdp"),
    ):  # fmt: skip
        update, seen = moved(world, sharding=sharding, accumulate=3)
        rows[name] = float((update - alone).norm() / alone.norm())
        rows["scaler"][name], rows["clip"][name] = seen.get("scaler"), seen["clip"]
    return rows


def _pure(ranks: Ranks) -> dict[str, Any]:
    """Weights in bf16: sums over ranks are made in fp32 by all three."""
    words = {"optimizer": "sgd", "precision": "bf16-pure", "lr": 0.02}
    rows = {
        name: trained(task(), ranks.world, sharding=name, accumulate=3, **words) for name in ("none", "ddp", "fsdp")
    }
    weights = {name: whole(parts.model) for name, (parts, _) in rows.items()}
    return {
        "distance": [distance(weights["none"], weights[name]) for name in ("ddp", "fsdp")],
        "dtypes": [seen["dtypes"]["parameters"] for _, seen in rows.values()],
        "bytes": rows["ddp"][0].traffic.per_step()["bytes_per_step"],
        "numbers": num_parameters(rows["ddp"][0].model, rows["ddp"][0].sharding.in_parts), "tensors": len(list(rows["ddp"][0].model.parameters())),
    }  # fmt: skip


def _large(ranks: Ranks) -> dict[str, Any]:
    """Parameters and optimizer state of a rank, and the bytes of a step, beside those of the whole model."""

    def model() -> nn.Module:
        return nn.Sequential(
            nn.Linear(7, 64), *(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)), nn.Linear(64, 3)
        )

    rows: dict[str, Any] = {}
    for name, words in {"none": {}, "ddp": {}, "fsdp": {}, "kept": {"sharding": "fsdp", "reshard": False}}.items():
        parts, _ = trained(task(model), ranks.world, **{"sharding": name, **words}, optimizer="adam", epochs=1)
        rows[name] = {
            "sizes": parts.memory.close(data_bytes=None)["sizes"], "traffic": parts.traffic.per_step(),
            "numbers": num_parameters(parts.model, parts.sharding.in_parts), "tensors": sum(1 for _ in parts.model.parameters()),
        }  # fmt: skip
    return rows


def _refusals(ranks: Ranks) -> dict[str, str]:
    class Scalar(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by, self.layer = nn.Parameter(torch.tensor(1.0)), nn.Linear(7, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.by

    class Bypassed(nn.Module):
        """In training, or in evaluation only, a part of a unit is called and not the unit."""

        def __init__(self, when: bool = True) -> None:
            super().__init__()
            self.inner, self.when = Net(), when

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner.head(x) if self.training == self.when else self.inner(x)

    class Penalty(Net):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), next(self.blocks[0].parameters()).square().sum()

    first = lambda outputs, batch: usual_loss(outputs[0], batch)  # noqa: E731

    class Box:
        def __init__(self, value: Any) -> None:
            self.value = value

    boxed = replace(
        task(),
        forward=lambda model, batch: Box(model(batch[0])),
        loss=lambda outputs, batch: usual_loss(outputs.value, batch),
        score=lambda *_: {},
    )
    said: dict[str, str] = {}
    for name, what, words in (
        ("scalar", task(Scalar), {"sharding": "fsdp"}),
        ("sparse", task(lambda: nn.Sequential(nn.Embedding(4, 4, sparse=True))), {"sharding": "ddp"}),
        ("empty", task(), {"sharding": "fsdp", "batch": NUM - 1}),
        ("bypassed", task(Bypassed, units=lambda model: [model.inner]), {"sharding": "fsdp"}),
        ("later", task(lambda: Bypassed(when=False), units=lambda model: [model.inner]), {"sharding": "fsdp"}),
        ("penalty", replace(task(Penalty), loss=first, score=lambda *_: {}), {"sharding": "fsdp"}),
        ("walked", task(Walked, units=lambda model: [model.layers]), {"remat": "full"}),
        ("uneven", task(), {"sharding": "fsdp", "batch": 13 if ranks.world.size == 2 else 14, "accumulate": 4}),
        ("boxed", boxed, {"sharding": "ddp"}),  # the last: DDP has sent what it should not have
    ):
        try:
            trained(what, ranks.world, **words)
            said[name] = "trained"
        except RunFailed as error:
            said[name] = f"{error.kind}: {error}"
    return said


CASES: dict[str, Callable[[Ranks], Any]] = {
    "none-sgd": lambda r: r.parity({"accumulate": 4}, **SGD),
    "none-compile": lambda r: r.parity({"graph": "compile"}, task(Walked), **SGD),
    "ddp-compile": lambda r: r.parity({"graph": "compile", "sharding": "ddp"}, task(Walked), **SGD),
    "none-export": lambda r: r.parity({"graph": "export"}, task(Walked), **SGD),
    "ddp-sgd": lambda r: r.parity({"sharding": "ddp", "accumulate": 3}, **SGD),
    "ddp-adamw": lambda r: r.parity({"sharding": "ddp", "remat": "selective"}, **ADAMW),
    "ddp-options": lambda r: r.parity({"sharding": "ddp", "bucket_mb": 1e-4, "bucket_view": True, "accumulate": 2}, **ADAMW),
    "ddp-bf16": lambda r: r.parity({"sharding": "ddp", "compress": "bf16"}, **SGD),
    "ddp-fp16": lambda r: r.parity({"sharding": "ddp", "compress": "fp16", "accumulate": 3}, **SGD),
    "fsdp-sgd": lambda r: r.parity({"sharding": "fsdp", "accumulate": 3}, **SGD),
    "fsdp-adamw": lambda r: r.parity({"sharding": "fsdp", "reshard": False, "update": "foreach"}, **ADAMW),
    "fsdp-fused": lambda r: r.parity({"sharding": "fsdp", "update": "fused", "remat": "full"}, **ADAMW),
    "fsdp-one-unit": lambda r: r.parity({"sharding": "fsdp"}, task(units=lambda model: [model]), **ADAMW),
    "fsdp-walked": lambda r: r.parity({"sharding": "fsdp"}, task(Walked), **SGD),
    # a unit with nothing of its own, around others, and the model itself
    "fsdp-nested": lambda r: r.parity(
        {"sharding": "fsdp"}, task(units=lambda m: [m, m.blocks[1], *(x for x in m.blocks[1] if list(x.parameters()))]), **SGD
    ),
    "local": _locally,
    "local-idle": _idle,
    "fsdp-bf16": lambda r: _half(r, "bf16"),
    "fsdp-fp16": lambda r: _half(r, "fp16"),
    "half-bf16": lambda r: _half_sums(r, "bf16"),
    "half-fp16": lambda r: _half_sums(r, "fp16"),
    "bf16-pure": _pure,
    "large": _large,
    "refusals": _refusals,
}  # fmt: skip


# Alone there is nobody to send to, and the same code runs.
OF_ONE = ("ddp-sgd", "fsdp-sgd", "fsdp-adamw", "half-bf16", "half-fp16")


def one_rank(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(folder / f"store{size}"), size), rank=rank, world_size=size
    )
    ranks = Ranks(World(rank=rank, size=size, local_rank=rank, host="here", device=HERE, backend="gloo"))
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        if size == 1 and name not in OF_ONE:
            continue
        try:
            found[name] = case(ranks)
        except Exception:
            found[name] = {"broke": traceback.format_exc()}
            break  # the other ranks may be somewhere else now
    (folder / f"{size}-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main(folder: Path) -> None:
    warm(for_graphs=True)
    fork = multiprocessing.get_context("fork")
    for size in (1, 2, 3):
        ranks = [fork.Process(target=one_rank, args=(rank, size, folder)) for rank in range(size)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
