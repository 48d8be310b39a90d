"""Recomputation changes no bit of a training, and keeps less."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo  # the first optimizer would: it sets an environment variable, and a test must not
from torch import nn

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.transform import remat


class Block(nn.Module):
    """All that must not be done twice, or must be done the same way: statistics, random draws, a buffer it computes with."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Linear(32, 8)
        self.drop, self.attention = nn.Dropout(0.3), nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, times: float = 1.0) -> torch.Tensor:
        self.seen += 1
        rows = x[:, None]
        x = x + self.attention(rows, rows, rows, need_weights=False)[0][:, 0] / self.seen.clone()
        return x + times * self.drop(self.down(torch.relu(self.norm(self.up(x)))))


class Net(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.blocks[0](x, times=0.5))  # one of them twice


def made(kind: str, depth: int = 3) -> Net:
    torch.manual_seed(0)
    net = Net(depth)
    remat.apply(Spec(task="features", remat=kind), net, list(net.blocks))
    return net


def trained(kind: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    net = made(kind)
    update = torch.optim.Adam(net.parameters(), lr=0.01, foreach=False)
    for _ in range(3):
        loss = net(torch.randn(16, 8)).square().sum()
        loss.backward()
        update.step()
        update.zero_grad()
    return net.state_dict(), loss


@pytest.mark.parametrize("kind", ["full", "selective"])
def test_not_a_bit_changes(kind: str) -> None:
    (plain, loss), (again, other) = trained("none"), trained(kind)
    assert plain.keys() == again.keys(), "no name in a state_dict changes"
    assert [name for name in plain if not plain[name].equal(again[name])] == []
    assert loss.equal(other) and bool(loss.isfinite())
    assert float(again["blocks.0.seen"]) == 6 and int(again["blocks.0.norm.num_batches_tracked"]) == 6, (
        "3 steps, twice in each"
    )


def kept(kind: str) -> int:
    """Bytes that autograd holds between the two passes, each storage once; what is selected is held beside it."""
    net, storages = made(kind, depth=6), {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        net(torch.randn(256, 8))
    own = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    return sum(size for address, size in storages.items() if address not in own)


def test_less_is_kept() -> None:
    assert kept("full") < kept("none") / 5


def test_selective_keeps_products_and_computes_the_rest_again() -> None:
    """Seen from the operators of the backward pass: with `full` products are there once more, with `selective` only the others."""

    def operators(kind: str) -> list[str]:
        net = made(kind)
        out = net(torch.randn(4, 8)).sum()
        seen: list[str] = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(func.overloadpacket.__name__)
                return func(*args, **(kwargs or {}))

        with Watch():
            out.backward()
        return seen

    forward = {kind: operators(kind) for kind in ("none", "full", "selective")}
    assert [words.count("native_batch_norm") for words in forward.values()] == [0, 4, 4]
    assert forward["none"].count("addmm") == 0 < forward["full"].count("addmm")
    assert forward["selective"].count("addmm") == 0


def test_it_is_read_from_the_modules() -> None:
    assert [remat.read_back(made(kind)) for kind in ("none", "full", "selective")] == ["none", "full", "selective"]


def test_what_was_done_is_counted_where_it_is_done() -> None:
    """A unit whose layers are called one by one computes nothing again, whatever was set on it."""
    spec, net = Spec(task="features", remat="full"), made("full")
    assert remat.recomputed(net) == 0
    net(torch.randn(4, 8)).sum().backward()
    assert remat.recomputed(net) == 3 and remat.nothing_recomputed(spec, 3) is None
    walked = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    remat.apply(spec, walked, [walked])
    walked[1](walked[0](torch.randn(2, 4))).sum().backward()
    assert remat.read_back(walked) == "full" and remat.recomputed(walked) == 0
    assert "asked for remat=full, but no unit of the model is called as a whole" in (
        remat.nothing_recomputed(spec, 0) or ""
    )
    assert remat.nothing_recomputed(Spec(task="features"), 0) is None


def test_without_gradients_nothing_is_kept_or_repeated() -> None:
    net = made("full").eval()
    with torch.no_grad():
        assert net(torch.zeros(2, 8)).grad_fn is None


def test_what_is_changed_in_place_cannot_be_kept() -> None:
    for kind in ("full", "selective"):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
        remat.apply(Spec(task="features", remat=kind), net, [net])
        out = net(torch.randn(2, 4)).sum()
        if kind == "full":
            out.backward()
            continue
        with pytest.raises(RunFailed, match=r"remat=selective: the model changes in place.*use remat=full"):
            out.backward()
