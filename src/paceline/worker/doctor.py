"""What torch can do on this machine, really tried: number formats on every device, backends, GPUs. It trains nothing and joins nobody.

`facts.json` is written again before each attempt, with its name in `trying`: an attempt that ends the process (an
instruction the CPU has not got) is known by it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.cuda import nccl

from paceline.base.files import write_json
from paceline.records.layout import RunDir
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.device import settle
from paceline.worker.measure.energy import gpu_lacks
from paceline.worker.world.amx import avoid_broken_amx

_PLAIN = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
_CHECKED = 128  # the product whose result is compared; a multiple of 16, as fp8 wants it
_TIMED = {"cpu": 128, "cuda": 2048}  # on a GPU the small one would time the launch alone
_FAR = 0.1  # a product further off than this, in norm, is no product; fp8 is off by about 0.04
_AS_FP32 = 1e-5  # a result closer than this was computed in fp32: no TF32 product is so close
_TRIES, _ENOUGH_S = 100, 0.05


def examine(run: RunDir) -> None:
    facts: dict[str, Any] = {
        "schema": 1, "torch": _torch(), "backends": {}, "gpus": [], "tried": [], "mpi": {}, "trying": None,
    }  # fmt: skip
    # One thread: on a busy machine several that wait for each other are slowed far more than one.
    torch.set_num_threads(1)
    facts["torch"]["onednn_limit"] = avoid_broken_amx()  # as a run does
    for what, stage in _stages(facts):
        write_json(run.facts, {**facts, "trying": what})
        stage()
    write_json(run.facts, facts)


def _stages(facts: dict[str, Any]) -> Iterator[tuple[dict[str, str], Callable[[], None]]]:
    """(what is being tried, the attempt): those that might end the process come last."""
    yield {"what": "backends"}, lambda: facts["backends"].update(_backends())
    yield {"what": "gpus"}, lambda: facts.update(_gpus())
    devices = ["cpu", *(f"cuda:{number}" for number in range(len(facts["gpus"])))]
    for device in devices:
        for name in _FORMATS:
            yield (
                {"what": "format", "format": name, "device": device},
                lambda name=name, device=device: facts["tried"].append(_attempt(name, torch.device(device))),
            )
    yield {"what": "mpi4py"}, lambda: facts["mpi"].update(_mpi())


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip()[:200] if lines else type(error).__name__


def _torch() -> dict[str, Any]:
    return {
        "version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip, "threads": torch.get_num_threads(),
    }  # fmt: skip


def _backends() -> dict[str, bool]:
    if not dist.is_available():
        return {"gloo": False, "nccl": False}
    return {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available()}


def _gpus() -> dict[str, Any]:
    """Each GPU; or none, and torch's own word for it."""
    try:
        torch.cuda.init()
        devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        version = nccl.version() if dist.is_nccl_available() else ()
    except (RuntimeError, AssertionError) as error:  # no driver, no device; a build without CUDA asserts
        return {"gpus": [], "no_gpu": _first_line(error)}
    gpus = [
        {
            "name": one.name, "memory_bytes": one.total_memory, "capability": [one.major, one.minor],
            "no_energy": gpu_lacks(torch.device("cuda", number)),
        }
        for number, one in enumerate(devices)
    ]  # fmt: skip
    return {"gpus": gpus, "nccl": ".".join(map(str, version))}


def _attempt(name: str, device: torch.device) -> dict[str, Any]:
    """One product, compared with fp64's, and where gradients exist in the format one backward; then its time."""
    said: dict[str, Any] = {"format": name, "device": str(device), "ok": False}
    try:
        with _tf32(name == "tf32"):
            far, said["backward"] = _compared(name, device)
            if (why := _doubt(name, far)) is not None:
                return {**said, "why": why}
            said["far"] = far  # not before: a NaN is not JSON
            said["size"] = _TIMED[device.type]
            said["took_s"] = _best(_product(name, *_factors(said["size"], device)), device)
    except Exception as error:
        return {**said, "why": _first_line(error)}
    return {**said, "ok": True}


def _doubt(name: str, far: float) -> str | None:
    if not far < _FAR:  # a NaN too
        return f"it computes something else: off by {far:.2g} of the result"
    if name == "tf32" and far < _AS_FP32:
        return "torch takes its tf32 switch and computes in fp32 all the same"
    return None


@contextmanager
def _tf32(on: bool) -> Generator[None]:
    """torch's own switches for the length of a block; each device has one."""
    _switch("tf32" if on else "ieee")
    try:
        yield
    finally:
        _switch("ieee")


def _switch(word: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = word
    torch.backends.mkldnn.matmul.fp32_precision = word  # pyright: ignore[reportAttributeAccessIssue]


def _factors(size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, generator=made, device=device) for _ in range(2))
    return a, b


def _product(name: str, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The product in the format; its factors are converted beforehand, so that the product alone is timed."""
    if name == "fp8":
        one = torch.ones((), device=a.device)
        left, right = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t()
        return lambda: torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)  # pyright: ignore[reportPrivateImportUsage]
    left, right = (value.to(_PLAIN.get(name, torch.float32)) for value in (a, b))
    return lambda: left @ right


def _compared(name: str, device: torch.device) -> tuple[float, bool]:
    """(distance from the product in fp64 over its norm, whether a backward was part of it); the worse of the two results."""
    a, b = _factors(_CHECKED, torch.device("cpu"))
    far = _far(_product(name, a.to(device), b.to(device))(), a.double() @ b.double())
    if name == "fp8":  # torch has the product alone; a backward is made of more of them
        return far, False
    left = a.to(device, _PLAIN.get(name, torch.float32)).requires_grad_()
    right = b.to(device, left.dtype)
    (left @ right).sum().backward()  # of a scalar: a gradient handed in makes torch import sympy, for seconds
    assert left.grad is not None
    wanted = torch.ones_like(a, dtype=torch.float64) @ b.double().t()
    return max(far, _far(left.grad, wanted)), True


def _far(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got.double().cpu() - wanted).norm() / wanted.norm())


def _best(product: Callable[[], torch.Tensor], device: torch.device) -> float:
    """The shortest of many: what others do on the machine only ever makes it longer."""
    best, trying = float("inf"), Stopwatch("all")
    product()
    for _ in range(_TRIES):
        settle(device)
        watch = Stopwatch("product")
        product()
        settle(device)
        best = min(best, watch.elapsed())
        if trying.elapsed() > _ENOUGH_S:
            break
    return best


def _mpi() -> dict[str, str]:
    """Which library mpi4py loads, without MPI_Init: outside mpirun that may start daemons, or end the process."""
    try:
        import mpi4py

        mpi4py.rc(initialize=False, finalize=False)
        from mpi4py import MPI

        from paceline.worker.world.mpi import short

        return {"mpi4py": mpi4py.__version__, "library": short(MPI.Get_library_version())}
    except (ImportError, RuntimeError) as error:  # not installed, or no MPI library for it to load
        return {"why": _first_line(error)}
