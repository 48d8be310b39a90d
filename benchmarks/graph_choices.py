"""Where a GPU's graph should compute something in our way and where in torch's: both, compiled and recorded, over a range of shapes.

    python benchmarks/graph_choices.py [--only "weight gradient" ...] [--rounds 7] [--json]
    python benchmarks/graph_choices.py --device cpu --quick     # its own arithmetic, where there is no GPU

The choices are those of worker/transform/small_products.py and few_channels.py, and their constants stand in
worker/transform/crossovers.py. Each shape is traced as a step is, compiled by inductor and recorded 20 times over in one CUDA graph, so
that what is timed is kernels one after the other and no starts of graphs. The two ways take turns, in random order. A crossover
is the size that loses least: of every threshold between two sizes of the grid, the one whose choices are, over all shapes, nearest to
the quicker way. "loss" is the time that the choices cost on the mean, over always taking the quicker way.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import torch
from ratios import ratio

from paceline.worker.step.recording import Recorder
from paceline.worker.transform.crossovers import MOST_SUMMED, MOST_TAPS
from paceline.worker.transform.few_channels import MOST_BYTES, weight_gradient
from paceline.worker.transform.small_products import summed
from paceline.worker.transform.tracing import compile_traced, trace

_aten = torch.ops.aten
_CALLS = 20  # of the compiled code in one recording
_PLAYS = 10  # of the recording in one timing
Tensors = dict[str, torch.Tensor]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`instead` is our way, forced whatever the size; torch's is the same body without it. `size` is what the code decides by."""

    constant: str
    present: int
    grid: Sequence[Shape]
    tensors: Callable[[Shape, torch.device], Tensors]
    body: Callable[[Tensors], None]
    instead: Mapping[Any, Callable[..., Any]]
    size: Callable[[Shape], int]


# ---- products: rows x inner, inner x columns ----


def _factors(shape: Shape, device: torch.device) -> Tensors:
    rows, inner, columns = shape
    made = {"a": (rows, inner), "b": (inner, columns), "bias": (columns,), "out": (rows, columns)}
    return {name: torch.randn(*sizes, device=device) for name, sizes in made.items()}


def _layer(state: Tensors) -> None:
    """With what follows a layer: torch's compiler may write both into one kernel."""
    state["out"].copy_(torch.addmm(state["bias"], state["a"], state["b"]).relu())


def _gradient(state: Tensors) -> None:
    state["out"].copy_(torch.mm(state["a"], state["b"]))


def _sum_with_bias(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return summed(a, b) + bias


PRODUCTS = list(product((24, 144, 864), (20, 160, 1280), (12, 72, 432)))


def _multiplications(shape: Shape) -> int:
    return math.prod(shape)


# ---- weight gradients: batch, channels in, channels out, kernel, side of an image ----


def _images(shape: Shape, device: torch.device) -> Tensors:
    batch, channels, outs, kernel, side = shape
    made = {
        "x": (batch, channels, side, side), "gradient": (batch, outs, side, side), "weight": (outs, channels, kernel, kernel),
        "out": (outs, channels, kernel, kernel),
    }  # fmt: skip
    return {name: torch.randn(*sizes, device=device) for name, sizes in made.items()}


def _of_weights(state: Tensors) -> None:
    gradient, x, weight = state["gradient"], state["x"], state["weight"]
    same = [weight.shape[2] // 2] * 2
    wanted = [False, True, False]
    _, weights, _ = _aten.convolution_backward(
        gradient, x, weight, None, [1, 1], same, [1, 1], False, [0, 0], 1, wanted
    )
    state["out"].copy_(weights)


def _by_products(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> Any:
    _, stride, padding, dilation, *_ = rest
    return None, weight_gradient(gradient, x, weight, stride, padding, dilation), None


def _taps(shape: Shape) -> int:
    _, channels, _, kernel, _ = shape
    return channels * kernel * kernel


def _fits(shape: Shape) -> bool:
    batch, _, _, _, side = shape
    return batch * side * side * _taps(shape) * 4 <= MOST_BYTES


GRADIENTS = [shape for shape in product((48, 384), (1, 2, 3, 6, 12, 24), (12,), (3, 5), (12, 30)) if _fits(shape)]

CHOICES: Mapping[str, Choice] = {
    "product": Choice(
        "MOST_SUMMED", MOST_SUMMED, PRODUCTS, _factors, _gradient, {_aten.mm.default: summed}, _multiplications
    ),
    "product with a bias": Choice(
        "MOST_SUMMED", MOST_SUMMED, PRODUCTS, _factors, _layer, {_aten.addmm.default: _sum_with_bias}, _multiplications
    ),
    "weight gradient": Choice(
        "MOST_TAPS", MOST_TAPS, GRADIENTS, _images, _of_weights, {_aten.convolution_backward.default: _by_products}, _taps
    ),
}  # fmt: skip


# ---- measuring ----


def played(choice: Choice, shape: Shape, device: torch.device, *, ours: bool) -> Callable[[], float]:
    """The way as compiled and, on a GPU, recorded code; each call is one timing: seconds of one computation."""
    state = choice.tensors(shape, device)
    call = compile_traced(trace(choice.body, state, choice.instead if ours else None), backend="inductor")
    if device.type == "cpu":
        return lambda: _host_s(call)

    def often() -> None:
        with torch.no_grad():
            for _ in range(_CALLS):
                call()

    recorder = Recorder(device)
    recorder.aside(often)  # kernels are loaded, libraries have their memory
    recording = recorder.record(often)
    recording.replay()
    return lambda: _device_s(recording)


def _host_s(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    with torch.no_grad():
        for _ in range(_CALLS):
            call()
    return (time.perf_counter() - began) / _CALLS


def _device_s(recording: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(_PLAYS):
        recording.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / _PLAYS / _CALLS


def compared(choice: Choice, shape: Shape, device: torch.device, rounds: int) -> dict[str, Any]:
    ways = {name: played(choice, shape, device, ours=name == "ours") for name in ("torch", "ours")}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            times[name].append(ways[name]())
    return {
        "shape": list(shape),
        "size": choice.size(shape),
        **ratio(times["ours"], times["torch"]),
        "torch_s": statistics.median(times["torch"]),
        "ours_s": statistics.median(times["ours"]),
    }


# ---- deciding ----


def loss(rows: Sequence[Mapping[str, Any]], threshold: float) -> float:
    """What the choices of a threshold cost on the mean (geometric), over always taking the quicker way; 0: nothing.

    >>> loss([{"size": 8, "ratio": 2.0}, {"size": 9, "ratio": 0.5}], 8.5)
    0.0
    >>> round(loss([{"size": 8, "ratio": 2.0}, {"size": 9, "ratio": 0.5}], 7), 3)
    0.414
    """
    lost = [max(math.log(row["ratio"]) * (-1 if row["size"] <= threshold else 1), 0.0) for row in rows]
    return math.expm1(statistics.fmean(lost))


def crossover(rows: Sequence[Mapping[str, Any]]) -> float:
    """The threshold that loses least, in the middle (geometric) between two sizes of the grid; 0: torch's way everywhere; without an
    end: ours everywhere.

    >>> crossover([{"size": 4, "ratio": 3.0}, {"size": 16, "ratio": 1.5}, {"size": 64, "ratio": 0.5}])
    32.0
    """
    sizes = sorted({row["size"] for row in rows})
    between = [math.sqrt(a * b) for a, b in pairwise(sizes)]
    return min((0.0, *between, math.inf), key=lambda threshold: loss(rows, threshold))


def concluded(choice: Choice, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    at = crossover(rows)
    return {
        "constant": choice.constant, "present": choice.present, "crossover": at if math.isfinite(at) else None,
        "loss": loss(rows, at), "loss_at_present": loss(rows, choice.present), "loss_of_torchs": loss(rows, 0.0), "rows": list(rows),
    }  # fmt: skip


def said(name: str, found: Mapping[str, Any]) -> str:
    at = "beyond the grid" if found["crossover"] is None else f"{found['crossover']:,.0f}"
    return (
        f"{name}: {found['constant']} is {found['present']:,} (loss {found['loss_at_present']:.1%}); crossover {at} "
        f"(loss {found['loss']:.1%}; torch's way everywhere: {found['loss_of_torchs']:.1%}), {len(found['rows'])} shapes"
    )


def measure(names: Sequence[str], device: torch.device, *, rounds: int, quick: bool) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        choice, rows = CHOICES[name], list[dict[str, Any]]()
        for shape in choice.grid[:: max(1, len(choice.grid) // 3)] if quick else choice.grid:
            row = compared(choice, shape, device, rounds)
            rows.append(row)
            print(
                f"{name} {'x'.join(map(str, shape)):>16}: {row['ratio']:5.2f}x, torch {row['torch_s'] * 1e6:7.2f} us, ours "
                f"{row['ours_s'] * 1e6:7.2f} us",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        found[name] = concluded(choice, rows)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CHOICES), default=list(CHOICES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--quick", action="store_true", help="three shapes of each grid: whether it works, and no figures"
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # precision=fp32, as a run has it
    found = measure(asked.only, device, rounds=asked.rounds, quick=asked.quick)
    result = {
        "schema": 1, "what": "seconds of torch's way over seconds of ours, as compiled and recorded code: above 1 ours is quicker",
        "choices": found, "rounds": asked.rounds, "dtype": "float32", "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }  # fmt: skip
    if asked.json:
        print(json.dumps(result, indent=1))
        return
    for name, choice in found.items():
        print(said(name, choice))


if __name__ == "__main__":
    main()
