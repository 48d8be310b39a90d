"""Up to which size a way of ours to compute something in a GPU's graph is quicker than torch's. Constants, and who measures them.

All of them come from one program: `python benchmarks/graph_choices.py --json` on the GPU that matters measures both ways over a range
of shapes, as compiled and recorded code, and prints for each constant the size that loses least over all of them ("crossover"). They
are fixed numbers, and no trial while a graph is made: a trial compiles each product twice, and two runs of one spec could choose
differently and end in different weights. Measured on 2026-11-16: one H200, torch 2.11.0, fp32, 7 rounds of each shape.
"""

from __future__ import annotations

# Multiplications (rows x inner x columns) of a product that is written as a sum, with and without a bias: over all shapes that choice
# is 1 % slower than the better way of each shape, and torch's alone 46 to 49 %.
MOST_SUMMED = 4_100_000
# Input channels x kernel places of a convolution whose weight gradient is a batch of products: over all shapes that
# choice is 2 % slower than the better way of each shape, and torch's alone 28 %.
MOST_TAPS = 90
