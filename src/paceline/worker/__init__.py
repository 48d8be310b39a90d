"""The other side of the wall: one process per rank. Only these rooms import torch; the parent never imports them."""
