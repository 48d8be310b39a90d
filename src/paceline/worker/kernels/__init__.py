"""Our own kernels, each with a plain-torch reference: a small C++ source, compiled once a machine at first use."""
