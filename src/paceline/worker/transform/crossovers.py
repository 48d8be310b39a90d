"""Up to which size a way of ours to compute something in a GPU's graph is quicker than torch's. Constants, and who measures them.

All of them come from one program: `python benchmarks/graph_choices.py --json` on the GPU that matters measures both ways over a range
of shapes, as compiled and recorded code, and prints for each constant the size that loses least over all of them ("crossover"). They
are fixed numbers, and no trial while a graph is made: a trial compiles each product twice, and two runs of one spec could choose
differently and end in different weights.
"""

from __future__ import annotations

# Multiplications (rows x inner x columns) of a product that is written as a sum; crossover of "product" and "product with a bias".
MOST_SUMMED = 1 << 20
# Multiplications of a product whose bias is added by a kernel of its own; crossover of "bias apart".
MOST_APART = 1 << 23
# Input channels x kernel places of a convolution whose weight gradient is a batch of products; crossover of "weight gradient".
MOST_TAPS = 36
