"""Clipping: the factor that shortens a gradient, and how often it was needed. No value is read on the host, so a graph
may contain it."""

from __future__ import annotations

import torch

_TINY = 1e-6  # as in torch's clip_grad_norm_


def new_counts(device: torch.device) -> torch.Tensor:
    """[steps whose gradient was clipped, the longest norm]; on the device, so that nobody waits for it."""
    return torch.zeros(2, dtype=torch.float64, device=device)


def count(counts: torch.Tensor, norm: torch.Tensor, limit: float) -> None:
    """A norm before it is clipped."""
    long = norm.detach().to(counts)
    counts.copy_(torch.stack([counts[0] + (long > limit), torch.maximum(counts[1], long)]))


def factor(norm: torch.Tensor, limit: float) -> torch.Tensor:
    return (limit / (norm + _TINY)).clamp(max=1.0)


def clipped(gradients: list[torch.Tensor], counts: torch.Tensor, limit: float | None) -> list[torch.Tensor]:
    """All gradients of a model, which are not sharded here. With a limit, the results are new tensors."""
    if limit is None:
        return gradients
    norm = torch.nn.utils.get_total_norm(gradients)
    count(counts, norm, limit)
    by = factor(norm, limit)
    return [gradient * by for gradient in gradients]
