"""The update rules as formulas are torch's own: every optimizer and option, over steps whose rate changes, in fp64 to 1e-12."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo

from paceline.worker.optim.table import rule_of

SHAPES = ((4, 3), (5,), ())
STEPS = 6

CASES: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"weight_decay": 0.1}),
    (torch.optim.AdamW, {"weight_decay": 0.1}),
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    (torch.optim.RMSprop, {}),
    (torch.optim.RMSprop, {"momentum": 0.5, "weight_decay": 0.1}),
]


def weights() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64, generator=generator)) for shape in SHAPES]


def give(parameters: list[torch.nn.Parameter], step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    found = [torch.randn(p.shape, dtype=torch.float64, generator=generator) for p in parameters]
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad = gradient.clone()
    return found


ADAMS = [case for case in CASES if issubclass(case[0], torch.optim.Adam)]


@pytest.mark.parametrize(
    ("kind", "options", "moves_beta", "corrected"),
    [
        *((*case, False, False) for case in CASES),
        *((*case, True, False) for case in ADAMS),
        *((*case, moves, True) for case in ADAMS for moves in (False, True)),
    ],
)
def test_a_formula_is_torchs_rule(
    kind: type[torch.optim.Optimizer], options: dict[str, Any], moves_beta: bool, corrected: bool
) -> None:
    theirs, ours = weights(), weights()
    reference, own = kind(theirs, lr=0.1, **options), kind(ours, lr=0.1, **options)
    rate = {"lr": torch.tensor(0.1, dtype=torch.float64)}
    if moves_beta:
        rate["beta"] = torch.tensor(0.9, dtype=torch.float64)
    for step in range(STEPS):
        lr, beta = 0.1 / (step + 1), 0.95 - 0.02 * step
        for optimizer in (reference, own):
            optimizer.param_groups[0]["lr"] = lr
            if moves_beta:
                optimizer.param_groups[0]["betas"] = (beta, 0.999)
        give(theirs, step)
        reference.step()
        gradients = give(ours, step)
        if step in (0, 3):  # the first makes the state; another in the middle goes on with the same one
            own.step()
            continue
        rate["lr"].fill_(lr)
        if moves_beta:
            rate["beta"].fill_(beta)
        group, states = own.param_groups[0], [own.state[parameter] for parameter in ours]
        rule = rule_of(own)
        assert rule is not None
        if corrected:
            assert rule.host_numbers is not None
            numbers = rule.host_numbers(group, lambda states=states: states, torch.float64)
            numbers.read_steps()
            numbers.advance()
            rate |= numbers.tensors
        names = states[0]
        for state in states:
            if "step" in state:  # counters as exact as the weights
                state["step"] = torch.as_tensor(state["step"], dtype=torch.float64)
        kept = {name: [state[name] for state in states] for name in names}
        with torch.no_grad():
            rule.formula(group)([p.detach() for p in ours], gradients, kept, rate)
    for one, other in zip(ours, theirs, strict=True):
        assert float((one - other).detach().norm() / other.detach().norm()) < 1e-12
