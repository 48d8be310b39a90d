"""`profile=`: N batches of one process looked into, twice: by the stopwatch alone, then under torch's profiler. It trains nothing to keep.

The first pass says how the time is really shared out, the second where inside the model it goes; the profiler slows small
operators down most, and by how much is said with the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from paceline.base.files import write_json
from paceline.records.events import Finished
from paceline.records.layout import RunDir
from paceline.records.steady import WARMUP_STEPS
from paceline.worker.assemble import Parts
from paceline.worker.measure.accounts import BACKWARD, FORWARD, Accounts
from paceline.worker.measure.clock import Stopwatch, wall
from paceline.worker.measure.device import settle
from paceline.worker.measure.ranges import ROOT, Phases, around_modules
from paceline.worker.measure.timeline import following
from paceline.worker.measure.traced import Trace
from paceline.worker.step.profiled import Instrument, ProfiledStep
from paceline.worker.tasks.augmented import augmented
from paceline.worker.tasks.feed import batches
from paceline.worker.tasks.order import Piece, epoch_order, evaluation_pieces, sample_keys, training_pieces
from paceline.worker.tasks.task import users_code

SCHEMA = 1
_SMALLEST = 1e-3  # share of all time: a smaller frame would be thinner than a line of the chart

_OF_A_TYPE = ("calls", "forward_s", "backward_s", "device_s", "bytes", "backward_bytes")


def profile(parts: Parts, run: RunDir) -> None:
    """Writes profile.json and the trace; the model's weights have moved (training), its hooks and mode are as they were."""
    num, device = parts.spec.steps or 0, parts.world.device
    with users_code(parts.task.name, parts.task.source), _mode(parts):
        _walk(parts, min(num, WARMUP_STEPS), Stopwatch("data"))
        clean = _clean(parts, num)
        trace = Trace(device)
        with around_modules(parts.model):
            with Trace(device).recording():  # the profiler's own start-up, and the first call of each hook
                _traced(parts, 1)
            with trace.recording():
                traced_s = _traced(parts, num)
    path = run.trace(parts.world.rank)
    trace.save(path)
    accounts = Accounts(trace.roots(), name=parts.spec.profile)
    row = {
        "schema": SCHEMA, "pass": parts.spec.profile, "num_batches": num, "batch": parts.spec.batch, "device": device.type,
        "clean": clean, "traced_s": traced_s, "slowed": traced_s / clean["total_s"],
        **_plain(accounts, parts.model), "trace": str(path.relative_to(run.path)),
    }  # fmt: skip
    write_json(run.profile, row)


def finished(parts: Parts) -> Finished:
    """The last event of a rank that profiled: done, and nothing in it that could be taken for a timing or a result."""
    nothing: dict[str, Any] = {"peak_bytes": None, "rss_bytes": 0}
    return Finished(
        parts={}, training_s=0.0, memory=nothing, weights_hash="", score={}, t=wall(),
        num_parameters=sum(p.numel() for p in parts.model.parameters()),
    )  # fmt: skip


@contextlib.contextmanager
def _mode(parts: Parts) -> Iterator[None]:
    training = parts.spec.profile == "training"
    was_training = parts.model.training
    parts.model.train(training)
    try:
        with torch.set_grad_enabled(training):
            yield
    finally:
        parts.model.train(was_training)


def _passes(parts: Parts, num: int) -> Iterator[list[Piece]]:
    """`num` batches from the beginning of the data, pass by pass: where it ends it starts over."""
    spec, epoch = parts.spec, 0
    while num > 0:
        if spec.profile == "training":
            order = epoch_order(parts.train.num, seed=spec.seed, epoch=epoch, shuffle=spec.shuffle)
            pieces = training_pieces(order, batch=spec.batch, rank=0, world_size=1)
        else:
            pieces = evaluation_pieces(parts.test.num, batch=spec.batch, rank=0, world_size=1)
        yield pieces[:num]
        num, epoch = num - len(pieces), epoch + 1


def _walk(parts: Parts, num: int, watch: Instrument) -> None:
    """Run the batches of a pass, phase by phase. The caller chooses what records the phases: a stopwatch or ranges."""
    training = parts.spec.profile == "training"
    step, feed = ProfiledStep(parts.step_parts, training=training), parts.train if training else parts.test
    for epoch, pieces in enumerate(_passes(parts, num)):
        fetched = batches(feed, pieces)
        for piece in pieces:
            watch.switch("data")
            batch = next(fetched)
            if training and parts.task.augment is not None:
                keys = torch.from_numpy(sample_keys(piece.ids, seed=parts.spec.seed, epoch=epoch))
                batch = augmented(parts.task, batch, keys.to(parts.world.device))
            step(batch, len(piece.ids), watch)


def _clean(parts: Parts, num: int) -> dict[str, Any]:
    settle(parts.world.device)
    watch = following(Stopwatch("before"), parts.world.device)
    _walk(parts, num, watch)
    watch.switch("after")
    watch.settle()
    spent = {name: seconds for name, seconds in watch.parts.items() if name not in ("before", "after")}
    total = sum(spent.values())
    share = spent["data"] / total
    return {"parts": spent, "total_s": total, "data_share": share, "model_share": 1 - share}


def _traced(parts: Parts, num: int) -> float:
    """Seconds of the pass under the profiler."""
    phases, watch = Phases(), Stopwatch("traced")
    try:
        _walk(parts, num, phases)
    finally:
        phases.close()
    settle(parts.world.device)
    return watch.elapsed()


def _plain(accounts: Accounts, model: torch.nn.Module) -> dict[str, Any]:
    """The accounts as JSON: modules in the model's own order, operators by their own time."""
    named = [(name or ROOT, module) for name, module in model.named_modules()]
    called = [(name, module, asdict(accounts.modules[name])) for name, module in named if name in accounts.modules]
    types: dict[str, dict[str, Any]] = {}
    for _, module, account in called:
        if next(module.children(), None) is None:
            total = types.setdefault(type(module).__name__, dict.fromkeys(_OF_A_TYPE, 0))
            total |= {key: total[key] + account[key] for key in _OF_A_TYPE}
    operators = [{"name": name, **asdict(account)} for name, account in accounts.operators.items()]
    own_forward_s, own_backward_s = (sum(row[f"own_{way}_s"] for _, _, row in called) for way in (FORWARD, BACKWARD))
    whole_forward_s, whole_backward_s = accounts.phase_s[FORWARD], accounts.phase_s[BACKWARD]
    return {
        "operators": sorted(operators, key=lambda row: -row["self_s"]),
        "modules": [{"name": name, "type": type(module).__name__, **account} for name, module, account in called],
        "types": types,
        "by_name": {name: account for name, _, account in called},
        "model": {"forward_s": accounts.in_modules_s, "backward_s": whole_backward_s, "device_s": accounts.device_s},
        # The task's own forward around the model, the loss's backward, gradients put in place: what no module did.
        "outside": {
            "forward_s": max(0.0, whole_forward_s - accounts.in_modules_s),
            "backward_s": max(0.0, whole_backward_s - own_backward_s),
        },
        "explained": own_forward_s / accounts.in_modules_s if accounts.in_modules_s else None,
        "tree": accounts.tree.plain(at_least_s=_SMALLEST * accounts.tree.total_s),
    }
