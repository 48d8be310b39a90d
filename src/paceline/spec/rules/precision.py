"""What cannot be computed in a number format."""

from __future__ import annotations

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.rules.rule import Known, Rule

# NVIDIA's compute capability from which on a GPU has the format, and what the sizes of a linear layer must be multiples of
# for its fp8 product.
TF32_CAPABILITY = (8, 0)
FP8_CAPABILITY = (8, 9)
FP8_MULTIPLE = 16
# Decided by the layers or by the GPU itself, so a `describe` job looks at both before the launch.
NEED_FACTS = frozenset({"tf32", "fp8"})


def _too_old(known: Known, needed: tuple[int, int]) -> bool:
    return known.capability is not None and known.capability < needed


def _no_layer_fits(known: Known) -> bool:
    """Shapes are those of torch's weights: (out, in)."""
    return known.linear is not None and not any(
        out % FP8_MULTIPLE == 0 and into % FP8_MULTIPLE == 0 for out, into in known.linear
    )


PRECISION: tuple[Rule, ...] = (
    Rule(
        "tf32-on-a-gpu",
        lambda spec, known: spec.precision == "tf32" and spec.device == "cpu",
        "precision=tf32 on a CPU: TF32 is a format of NVIDIA's GPUs from capability 8.0 on; use precision=fp32, or a GPU",
    ),
    Rule(
        "tf32-on-a-new-gpu",
        lambda spec, known: (
            spec.precision == "tf32"
            and spec.device == "cuda"
            and not spec.in_queue
            and _too_old(known, TF32_CAPABILITY)
        ),
        "precision=tf32, but this machine's GPU has capability {capability}, and TF32 begins with 8.0: use precision=fp32",
    ),
    Rule(
        "fp8-on-a-gpu",
        lambda spec, known: spec.precision == "fp8" and spec.device == "cpu" and spec.wrap == "none",
        "precision=fp8 on a CPU: fp8 products need an NVIDIA GPU of capability 8.9 or more; use precision=bf16, or a GPU",
    ),
    Rule(
        "torchao-installed",
        lambda spec, known: (
            spec.precision == "fp8"
            and spec.device == "cuda"
            and spec.wrap == "none"
            and "torchao" not in known.host.packages
        ),
        "precision=fp8 goes through torchao, and it is not installed in this Python: pip install 'paceline[fp8]'",
    ),
    Rule(
        "fp8-on-a-new-gpu",
        lambda spec, known: (
            spec.precision == "fp8" and spec.device == "cuda" and not spec.in_queue and _too_old(known, FP8_CAPABILITY)
        ),
        "precision=fp8, but this machine's GPU has capability {capability}, and fp8 products begin with 8.9: use precision=bf16",
    ),
    Rule(
        "fp8-has-layers",
        lambda spec, known: spec.precision == "fp8" and _no_layer_fits(known),
        "precision=fp8, but none of the model's {num_linear} linear layers has both sizes a multiple of 16, which fp8 products "
        "need: use precision=bf16",
    ),
    Rule(
        "fp8-whole-layers",
        lambda spec, known: spec.precision == "fp8" and not SHARDINGS[spec.sharding].replicates,
        "precision=fp8 with sharding={sharding}: in this version only layers that are whole on every rank are put in fp8; use "
        "sharding=none or ddp, or precision=bf16",
    ),
    Rule(
        "fp8-in-these-graphs",
        lambda spec, known: spec.precision == "fp8" and not GRAPHS[spec.graph].takes_fp8,
        "precision=fp8 with graph={graph}: fp8 layers were only tried eagerly and compiled; use graph=eager or compile",
    ),
    Rule(
        "fp16-decides-together",
        lambda spec, known: spec.precision == "fp16" and spec.sync_every > 1,
        "precision=fp16 with sync_every={sync_every}: ranks that update alone would leave out different updates; use sync_every=1, "
        "or precision=bf16",
    ),
    Rule(
        "accelerate-drops-fp16",
        lambda spec, known: spec.wrap == "accelerate" and spec.precision == "fp16" and spec.device == "cpu",
        "wrap=accelerate precision=fp16 on a CPU: accelerate drops fp16 there without a word and trains in fp32; use "
        "precision=bf16 or fp32, or a GPU; with wrap=none fp16 works on a CPU too",
    ),
    Rule(
        "accelerate-has-no-pure-format",
        lambda spec, known: spec.wrap == "accelerate" and spec.precision == "bf16-pure",
        "wrap=accelerate precision=bf16-pure: accelerate's bf16 is mixed precision, with weights in fp32; use precision=bf16, or "
        "wrap=none",
    ),
    Rule(
        "accelerate-leaves-layers-out",
        lambda spec, known: spec.wrap == "accelerate" and spec.precision == "fp8",
        "wrap=accelerate precision=fp8: accelerate leaves the first and the last linear layer out, so a small model would have "
        "none in fp8 under that name; use wrap=none on a GPU, or precision=bf16",
    ),
)
