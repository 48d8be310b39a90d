"""What our own kernel of convolution, ReLU and pooling cannot do.

Whether a model has a convolution that fits only the worker can see, which says why where none does.
"""

from __future__ import annotations

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.host import COMPILERS
from paceline.spec.rules.rule import Rule

KERNEL: tuple[Rule, ...] = (
    Rule(
        "fused-on-a-cpu",
        lambda spec, known: spec.kernel == "fused" and spec.device == "cuda",
        "kernel=fused with device=cuda: our kernel of convolution, ReLU and pooling is for CPUs; use kernel=torch",
    ),
    Rule(
        "fused-has-a-compiler",
        lambda spec, known: (
            spec.kernel == "fused" and not spec.in_queue and not known.host.programs.intersection(COMPILERS)
        ),
        "kernel=fused is compiled at first use, and there is no C++ compiler on this machine: install one (apt install g++), or use "
        "kernel=torch",
    ),
    Rule(
        "fused-has-this-format",
        lambda spec, known: spec.kernel == "fused" and spec.precision == "fp16",
        "kernel=fused with precision={precision}: our kernel computes in fp32, fp64 and bf16; use one of these, or kernel=torch",
    ),
    Rule(
        "fused-has-no-export",
        # Its convolutions would come out of the exported graph without a gradient (seen), and without a word of torch's.
        lambda spec, known: spec.kernel == "fused" and GRAPHS[spec.graph].is_exported,
        "kernel=fused with graph=export: an exported graph has our kernel's forward pass alone, so its convolutions would not be "
        "trained; use graph=compile, or kernel=torch",
    ),
    Rule(
        "fused-of-whole-layers",
        lambda spec, known: spec.kernel == "fused" and not SHARDINGS[spec.sharding].fused_kernel,
        "kernel=fused with sharding={sharding}: layers that are cut into pieces keep torch's convolutions in this version; use another "
        "sharding, or kernel=torch",
    ),
)
