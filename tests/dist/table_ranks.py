"""The ranks of `test_tables.py`: `python table_ranks.py FOLDER`. Every case at 2 and 3 ranks, each compared with one process.

torch is imported once and the ranks are forked from there. The parts are put together by `assemble` as in a run; only the loop is
ours, so that one start serves every case. FOLDER/SIZE gets what each rank says of each case, as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor, nn

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.applied import check, read_back
from paceline.worker.assemble import Parts, assemble
from paceline.worker.evaluate import evaluate
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.tally import Tally
from paceline.worker.resilience.weights import fingerprint, restore, save
from paceline.worker.sharding.lookup import Exchange
from paceline.worker.sharding.sharding import num_parameters
from paceline.worker.sharding.timed_group import timed_group
from paceline.worker.shared_data import load_data
from paceline.worker.step.input import StepInput
from paceline.worker.step.together import Together
from paceline.worker.tasks.feed import batches
from paceline.worker.tasks.forms import LOSS
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.order import micro_pieces, training_pieces
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.world.join import World

STEPS = 3
GATE = 1e-12
OURS = ("sharding", "table_split", "accumulate", "remat")  # one process is compared with, plain and in one piece


class Bags(nn.Module):
    """Two tables beside each other, one with a padding row, asked for several rows a sample."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(41, 6, padding_idx=3, sparse=sparse)
        self.places = nn.Embedding(7, 6)
        self.out = nn.Linear(6, 3)
        nn.init.normal_(self.out.weight, std=0.3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out((self.words(ids) + self.places(ids % 7)).mean(1).tanh())


def bags(*, sparse: bool) -> Task:
    source = torch.Generator().manual_seed(5)
    ids, labels = torch.randint(0, 41, (52, 4), generator=source), torch.randint(0, 3, (52,), generator=source)
    ids[:, 0] = 3  # padding in every sample
    return Task(
        "bags", partial(Bags, sparse=sparse), lambda: (ids, labels), lambda: (ids[:17], labels[:17]),
        usual_forward, usual_loss, usual_score,
    )  # fmt: skip


def clicks(**changes: Any) -> Task:
    sizes = {"tables": 3, "rows": 101, "dim": 7, "hidden": 8, "num_train": 52, "num_test": 17}
    return load_task("recommender", sizes | changes, None)


def transformer(**changes: Any) -> Task:
    sizes = {"layers": 1, "heads": 12, "width": 24, "context": 8, "num_train": 52, "num_test": 17}
    return load_task("transformer", sizes | changes, None)


class Ranks:
    def __init__(self, rank: int, size: int, folder: Path) -> None:
        self.rank, self.size, self.folder = rank, size, folder
        self._known: dict[str, Parts] = {}

    def world(self, *, alone: bool) -> World:
        return World(
            0 if alone else self.rank, 1 if alone else self.size, self.rank, "here", torch.device("cpu"), "gloo"
        )

    def parts(self, task: Task, *, alone: bool = False, **settings: Any) -> Parts:
        given: dict[str, Any] = {
            "task": task.name, "on": "1x1" if alone else f"1x{self.size}", "threads": 1, "device": "cpu", "weight_decay": 0.0,
            "update": "single", "precision": "fp64", "batch": 13, "lr": 0.05, "steps": STEPS, "epochs": None, "messages": "backend",
        }  # fmt: skip
        if alone:
            settings = {name: value for name, value in settings.items() if name not in OURS}
        spec = Spec.model_validate(given | settings)
        world = self.world(alone=alone)
        feeds = load_data(spec, task, rank=world.rank)
        made = assemble(spec, task, feeds, world, Stopwatch("startup"), (None, "not asked here"))
        check(spec, read_back(made))
        made.model.train()
        return made

    def steps(self, parts: Parts, num: int = STEPS) -> float:
        """The loss sum of this rank's share."""
        share, tally = parts.sharding.share, Tally()
        order = torch.arange(parts.train.num).numpy()
        pieces = training_pieces(order, batch=parts.spec.batch, rank=share.index, world_size=share.num)
        for number in range(num):
            piece = pieces[number % len(pieces)]
            micro = micro_pieces(piece, parts.spec.accumulate)
            fetched = batches(parts.train, [piece._replace(ids=ids) for ids in micro])
            step_input = [
                (batch, len(ids), index + 1 == len(micro))
                for index, (batch, ids) in enumerate(zip(fetched, micro, strict=True))
            ]
            parts.step(StepInput(iter(step_input)), tally)
        parts.sharding.synchronize(at_once=True)
        return tally.means()[LOSS] or 0.0

    def alone(self, task: Task, **settings: Any) -> Parts:
        """One process with the same settings, trained; kept, because several cases compare with the same."""
        key = repr((task.name, task.build_model(), sorted((k, v) for k, v in settings.items() if k not in OURS)))
        if key not in self._known:
            self._known[key] = self.parts(task, alone=True, **settings)
            self.steps(self._known[key])
        return self._known[key]

    def same(self, task: Task, **settings: Any) -> Parts:
        """Trains both ways and compares every tensor, and the score of the test set."""
        reference = self.alone(task, **settings)
        mine = self.parts(task, **settings)
        self.steps(mine)
        wanted, got = reference.model.state_dict(), whole_state(mine)
        assert wanted.keys() == got.keys(), (wanted.keys(), got.keys())
        for name, tensor in wanted.items():
            assert tensor.shape == got[name].shape, name
            if name.endswith("key.bias"):
                continue  # a softmax does not see it: its gradient is 0, and what is there is rounding
            apart = float((tensor - got[name]).norm() / tensor.norm())
            assert apart < GATE, f"{name} is {apart:.2g} away"
        scores = [evaluate(p)[1] for p in (reference, mine)]
        assert scores[0].num == scores[1].num == mine.test.num
        for name, value in scores[0].means().items():
            assert abs((value or 0) - (scores[1].means()[name] or 0)) < 1e-9, name
        assert num_parameters(reference.model, reference.sharding.in_parts) == num_parameters(
            mine.model, mine.sharding.in_parts
        )
        return mine


def whole_state(parts: Parts) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for name, tensor in parts.model.state_dict().items():
        if name in parts.sharding.in_parts:
            state[name] = torch.cat(list(parts.sharding.in_parts[name].pieces()))
        else:
            state[name] = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # pyright: ignore[reportAttributeAccessIssue]
    return state


def refused(wanted: str, call: Callable[[], Any], kind: type[Exception] = RunFailed) -> None:
    with pytest.raises(kind, match=re.escape(wanted)):
        call()


# ---- tables ----


def tables(ranks: Ranks, split: str, *, sparse: bool) -> None:
    for optimizer, more in (("sgd", {"clip": 0.05}), ("adam", {"accumulate": 2, "clip": 0.05})):
        mine = ranks.same(clicks(sparse=sparse), sharding="embedding", table_split=split, optimizer=optimizer, **more)
        found = mine.sharding.read_back()
        assert found["table_split"] == split and found["tables"] == 3 and found["sparse_tables"] == 3 * sparse
        shards = [table.shard for table in mine.sharding.in_parts.values()]  # pyright: ignore[reportAttributeAccessIssue]
        assert sum(shard.numel() for shard in shards) < 3 * 101 * 7 / ranks.size + 3 * 101, "a part, not the table"
        if "clip" in more:
            assert mine.update.read_back()["clip"]["steps"] == STEPS, "the clip must have been needed"
    ranks.same(bags(sparse=sparse), sharding="embedding", table_split=split, optimizer="adam", remat="full")


def the_same_numbers_at_the_start(ranks: Ranks) -> None:
    """Bit by bit, and of everything that is drawn after a table too."""
    for make, split in ((bags, "rows"), (bags, "columns"), (clicks, "rows")):
        settings = {"optimizer": "adam", "precision": "fp32"}
        first = ranks.parts(make(sparse=False), alone=True, **settings).model.state_dict()
        cut = whole_state(ranks.parts(make(sparse=False), sharding="embedding", table_split=split, **settings))
        assert all(tensor.equal(cut[name]) for name, tensor in first.items()), (make, split)
    assert not first["tables.0.weight"].equal(first["tables.1.weight"])


def messages_of_tables(ranks: Ranks) -> None:
    """Each table: ids, rows, gradients; the rest of the model: one. All of them are communication, equally often on every rank."""
    parts = ranks.parts(clicks(sparse=True), sharding="embedding", optimizer="sgd")
    ranks.steps(parts, 1)
    before, collective_times = parts.world.sent.num, len(parts.watch.collective_times)
    ranks.steps(parts, 1)
    assert parts.world.sent.num - before == 3 * 3 + 1, parts.world.sent.num - before
    assert len(parts.watch.collective_times) - collective_times == 3 * 3 + 1
    assert parts.world.sent.bytes > 0
    parts.watch.switch("data")
    assert parts.watch.parts["forward"] > 0 and parts.watch.parts["communication"] > 0


def gradients_lie_where_the_rows_do(ranks: Ranks) -> None:
    for sparse in (True, False):
        parts = ranks.parts(clicks(sparse=sparse), sharding="embedding", optimizer="sgd")
        ranks.steps(parts, 1)
        for table in parts.sharding.in_parts.values():
            gradient = table.shard.grad  # pyright: ignore[reportAttributeAccessIssue]
            assert gradient.is_sparse == sparse and gradient.shape == table.shard.shape  # pyright: ignore[reportAttributeAccessIssue]


def one_file_and_one_fingerprint(ranks: Ranks) -> None:
    """Of a model in parts, and of the same numbers in one process."""
    for number, (task, settings) in enumerate(
        (
            (clicks(sparse=True), {"sharding": "embedding", "optimizer": "sgd"}),
            (clicks(sparse=True), {"sharding": "embedding", "optimizer": "sgd", "table_split": "columns"}),
            (transformer(), {"sharding": "tensor", "optimizer": "sgd"}),
        )
    ):
        parts = ranks.parts(task, precision="fp32", **settings)
        ranks.steps(parts, 1)
        digest = fingerprint(parts.model, parts.sharding.in_parts)
        path = ranks.folder / f"weights_{number}.safetensors"
        save(parts.model, path, in_parts=parts.sharding.in_parts, writes=ranks.rank == 0)
        dist.barrier()
        plain = task.build_model()
        restore(plain, path)
        assert fingerprint(plain) == digest
        assert load_file(path).keys() == plain.state_dict().keys()
        save(plain, ranks.folder / f"plain_{ranks.rank}.safetensors")
        assert (ranks.folder / f"plain_{ranks.rank}.safetensors").stat().st_size == path.stat().st_size
        dist.barrier()


def what_a_cut_table_cannot_do(ranks: Ranks) -> None:
    def with_model(make: Callable[[], nn.Module]) -> Callable[[], Any]:
        return lambda: ranks.parts(replace(bags(sparse=False), model=make), sharding="embedding")

    def used(model: nn.Module, batch: Any) -> Tensor:
        return model.get_submodule("words").weight[batch[0]].mean((1, 2))  # pyright: ignore[reportReturnType, reportIndexIssue, reportCallIssue, reportOptionalSubscript]

    def reinitialised(how: Callable[[Any], Any]) -> Callable[[], nn.Module]:
        def make() -> nn.Module:
            model = Bags(sparse=False)
            with torch.no_grad():
                how(model.words.weight)
            return model

        return make

    def tied() -> nn.Module:
        model = Bags(sparse=False)
        head = nn.Linear(6, 41)
        head.weight = model.words.weight
        return nn.Sequential(model, head)

    refused("has none", with_model(lambda: nn.Linear(4, 3)))
    refused("nn.EmbeddingBag", with_model(lambda: nn.EmbeddingBag(9, 4)))
    refused("max_norm", with_model(lambda: nn.Embedding(9, 4, max_norm=1.0)))
    refused("from_pretrained", with_model(lambda: nn.Embedding.from_pretrained(torch.zeros(9, 4), freeze=False)))
    refused("cannot be cut by rows", with_model(lambda: nn.Embedding(1, 4)))
    refused("is also 1.weight", with_model(tied))
    refused("whole table", with_model(reinitialised(nn.init.trunc_normal_)))
    refused("whole table", with_model(reinitialised(nn.init.orthogonal_)))
    refused("whole table", with_model(reinitialised(lambda weight: weight.copy_(torch.zeros(41, 6)))))
    refused(
        "whole table",
        lambda: ranks.steps(ranks.parts(replace(bags(sparse=False), forward=used), sharding="embedding"), 1),
    )
    for how in (
        lambda w: w.uniform_(-1, 1),
        lambda w: nn.init.xavier_normal_(w).mul_(2),
        lambda w: w.data[5].fill_(7.0),
        nn.init.ones_,
    ):
        task = replace(bags(sparse=False), model=reinitialised(how))
        first = ranks.parts(task, alone=True).model.state_dict()
        assert all(t.equal(first[name]) for name, t in whole_state(ranks.parts(task, sharding="embedding")).items())


def an_id_that_is_no_row(ranks: Ranks) -> None:
    parts = ranks.parts(bags(sparse=False), sharding="embedding")
    refused("table of 41 rows", lambda: parts.task_module((torch.tensor([[41]]), torch.tensor([0]))), IndexError)


# ---- sparse gradients without cutting ----


def sparse_gradients_of_whole_tables(ranks: Ranks) -> None:
    for optimizer, more in (("sgd", {"clip": 0.05}), ("adam", {"accumulate": 2, "clip": 0.3})):
        mine = ranks.same(clicks(sparse=True), optimizer=optimizer, **more)
        assert mine.model.get_submodule("tables.0").weight.grad.is_sparse  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    ranks.same(bags(sparse=True), optimizer="adam")


def sparse_gradients_and_a_rank_without_samples(ranks: Ranks) -> None:
    """52 samples in batches of 51: the last batch is one sample, and only rank 0 has it."""
    ranks.same(clicks(sparse=True), optimizer="adam", batch=51)


# ---- cut layers ----


def half_formats(ranks: Ranks) -> None:
    """As far from one process as rounding makes them, and no further."""
    if ranks.size > 2:
        return  # the formats do not depend on how many there are
    for task, sharding in ((clicks(), "embedding"), (transformer(), "tensor")):
        for precision in ("bf16", "bf16-pure", "fp16"):
            settings = {"precision": precision, "optimizer": "sgd", "clip": 0.5}
            mine, alone = ranks.parts(task, sharding=sharding, **settings), ranks.parts(task, alone=True, **settings)
            losses = ranks.steps(mine, 2), ranks.steps(alone, 2)
            assert mine.step.computed == alone.step.computed
            if sharding == "tensor":
                assert abs(losses[0] - losses[1]) < 0.01 * losses[1], (precision, losses)
            for name, tensor in whole_state(mine).items():
                assert (tensor - alone.model.state_dict()[name]).float().norm() < 0.02, (precision, name)


def layers(ranks: Ranks) -> None:
    for optimizer, more in (
        ("sgd", {"clip": 0.05, "momentum": 0.9}),
        ("adam", {"accumulate": 3, "clip": 0.3}),
        ("adam", {"update": "foreach"}),
        ("sgd", {"remat": "full"}),
    ):
        mine = ranks.same(transformer(), sharding="tensor", optimizer=optimizer, **more)
    found = mine.sharding.read_back()
    assert found["cut"] == {
        "Linear.bias by dimension 0": 4, "Linear.weight by dimension 0": 4, "Linear.weight by dimension 1": 2,
    }, found  # fmt: skip
    blocks = sum(
        p.numel()
        for name, p in ranks.alone(transformer(), optimizer="sgd").model.named_parameters()
        if "blocks" in name
    )
    assert found["parameters"]["rank"] < found["parameters"]["model"] - blocks * (1 - 1 / ranks.size) * 0.9


def what_a_ring_sends(ranks: Ranks) -> None:
    """Of every kind that torch may call through our group, and of our own all-to-all: (bytes given, bytes sent)."""
    world, n = ranks.world(alone=False), ranks.size
    group, watch = timed_group(world, Stopwatch("startup")), Stopwatch("startup")
    own, whole = torch.zeros(5), torch.zeros(5 * n)
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    uneven = [1 + rank for rank in range(n)]
    to_me, given = [1 + ranks.rank] * n, 4 * sum(uneven)
    pieces = [torch.zeros(1 + rank, 3) for rank in range(n)]
    seen: dict[str, tuple[float, float]] = {}

    def count(name: str, call: Callable[[], Any]) -> None:
        before = world.sent.bytes, world.sent.ring_bytes
        call()
        seen[name] = world.sent.bytes - before[0], world.sent.ring_bytes - before[1]

    count("sum", lambda: dist.all_reduce(own.clone(), group=group))
    count("broadcast", lambda: dist.broadcast(own.clone(), src=0, group=group))
    count("gather", lambda: gather(whole, own, group=group))
    count("list", lambda: dist.all_gather([own.clone() for _ in range(n)], own, group=group))
    count("cut", lambda: scatter(own, whole, group=group))
    count("even", lambda: dist.all_to_all_single(torch.zeros(5 * n), whole, group=group))
    room, message = torch.zeros(sum(to_me)), torch.zeros(sum(uneven))
    count("uneven", lambda: dist.all_to_all_single(room, message, to_me, uneven, group=group))
    count("ours", lambda: Exchange(world, watch).all_to_all(pieces, [(1 + ranks.rank, 3)] * n))
    count("rows", lambda: Together(world, None).rows(torch.zeros(3 if ranks.rank else 1, 2), [1] + [3] * (n - 1)))
    others = given - 4 * uneven[ranks.rank]
    wanted = {
        "sum": (20, 20 * 2 * (n - 1) / n), "broadcast": (20, 20 * (n - 1) / n), "gather": (20, 20 * (n - 1)),
        "list": (20, 20 * (n - 1)), "cut": (20 * n, 20 * (n - 1)), "even": (20 * (n - 1), 20 * (n - 1)), "uneven": (others, others),
        "ours": (3 * others, 3 * others), "rows": (24, 24 * (n - 1)),
    }  # fmt: skip
    assert seen.keys() == wanted.keys()
    for name, both in seen.items():
        assert both == pytest.approx(wanted[name]), (name, both, wanted[name])


def messages_of_layers(ranks: Ranks) -> None:
    """Two sums forward and two backward for each block, seen by our group: nothing heard would be nothing timed."""
    parts = ranks.parts(transformer(), sharding="tensor", optimizer="sgd", clip=1.0)
    ranks.steps(parts, 1)
    before, collective_times, told = parts.world.sent.num, len(parts.watch.collective_times), parts.sharding.group.num  # pyright: ignore[reportAttributeAccessIssue]
    bytes_before = parts.world.sent.bytes, parts.world.sent.ring_bytes
    ranks.steps(parts, 1)
    heard = parts.sharding.group.num - told  # pyright: ignore[reportAttributeAccessIssue]
    assert heard >= 4, heard
    assert parts.world.sent.num - before == heard + 1, "and one for the norm"
    given, sent = (
        now - then
        for now, then in zip((parts.world.sent.bytes, parts.world.sent.ring_bytes), bytes_before, strict=True)
    )
    assert sent == pytest.approx(given * 2 * (ranks.size - 1) / ranks.size), "sums, all of them"
    assert len(parts.watch.collective_times) - collective_times == heard + 1
    told = parts.sharding.group.num  # pyright: ignore[reportAttributeAccessIssue]
    evaluate(parts)
    assert parts.sharding.group.num > told  # pyright: ignore[reportAttributeAccessIssue]
    assert parts.watch.parts["communication"] > 0


def plans_that_cannot_be(ranks: Ranks) -> None:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    data = torch.randn(52, 4, generator=torch.Generator().manual_seed(1)), torch.arange(52) % 3
    plain = Task(
        "plain", lambda: nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3)), lambda: data, lambda: data,
        usual_forward, usual_loss, usual_score,
    )  # fmt: skip

    def cut(plan: Any) -> Callable[[], Parts]:
        return lambda: ranks.parts(replace(plain, tensor_plan=lambda _: plan), sharding="tensor", optimizer="sgd")

    refused("define tensor_plan(model)", lambda: ranks.parts(plain, sharding="tensor"))
    refused("not empty", cut({}))
    refused("did you mean '2'", cut({"0": ColwiseParallel(), "22": RowwiseParallel()}))
    refused("a str, not a style", cut({"0": "column"}))
    refused("it is a ReLU", cut({"1": ColwiseParallel()}))
    refused("is no multiple of", cut({"0": RowwiseParallel()} if ranks.size == 3 else {"2": ColwiseParallel()}))
    ranks.same(
        replace(plain, tensor_plan=lambda _: {"0": ColwiseParallel(), "2": RowwiseParallel()}),
        sharding="tensor",
        optimizer="sgd",
    )
    half = cut({"0": ColwiseParallel(), "2": RowwiseParallel(output_layouts=Shard(0))})
    refused("gave other outputs", lambda: ranks.steps(half(), 1))
    whole = cut({"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel(use_local_output=False)})
    refused("DTensors", lambda: ranks.steps(whole(), 1))

    def noisy(model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0]) * (1 + ranks.rank * 1e-5)

    drifting = replace(plain, forward=noisy, tensor_plan=lambda _: {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if ranks.rank == 0:
        ranks.steps(ranks.parts(drifting, sharding="tensor", optimizer="sgd"), 3)
    else:
        refused("must stay the same", lambda: ranks.steps(ranks.parts(drifting, sharding="tensor", optimizer="sgd"), 3))

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 12, bias=False), nn.Linear(4, 12, bias=False)
            self.b.weight = self.a.weight

    tied = replace(plain, model=Tied, tensor_plan=lambda _: {"a": ColwiseParallel()})
    refused("share one weight", lambda: ranks.parts(tied, sharding="tensor"))


CASES: Sequence[tuple[str, Callable[[Ranks], None]]] = (
    *((f"tables by {split}, {'sparse' if sparse else 'dense'}", partial(tables, split=split, sparse=sparse))
      for split in ("rows", "columns") for sparse in (True, False)),
    *((case.__name__, case) for case in (
        the_same_numbers_at_the_start, messages_of_tables, gradients_lie_where_the_rows_do, one_file_and_one_fingerprint,
        what_a_cut_table_cannot_do, an_id_that_is_no_row, sparse_gradients_of_whole_tables, sparse_gradients_and_a_rank_without_samples,
        layers, what_a_ring_sends, messages_of_layers, half_formats, plans_that_cannot_be,
    )),
)  # fmt: skip


def one_rank(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    wait = timedelta(seconds=40)  # a case that fails on one rank must not leave the others waiting
    dist.init_process_group(
        "gloo", timeout=wait, store=dist.FileStore(str(folder / "store"), size), rank=rank, world_size=size
    )  # pyright: ignore[reportPrivateImportUsage]
    ranks, results = Ranks(rank, size, folder), dict[str, str]()
    for name, case in CASES:
        try:
            case(ranks)
            results[name] = "passed"
        except Exception:
            results[name] = traceback.format_exc()
        dist.barrier()
        (folder / f"rank_{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def main(folder: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for size in (2, 3):
        (folder / str(size)).mkdir()
        ranks = [fork.Process(target=one_rank, args=(rank, size, folder / str(size))) for rank in range(size)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
