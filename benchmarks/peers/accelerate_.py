"""The same loop through accelerate, as its quick tour has it: prepare, and accelerator.backward. The loss is read every step too."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from same import finish, ground
from torch.nn import functional


def main() -> None:
    given = ground()
    clock = given.clock
    accelerator = Accelerator(cpu=given.asked.device == "cpu")
    torch.set_num_threads(given.asked.threads)
    optimizer = given.update()
    schedule = given.schedule(optimizer)
    model, optimizer, loader = accelerator.prepare(given.model, optimizer, given.loader)
    model.train()
    for epoch in given.epochs():
        given.order.set_epoch(epoch)
        total = 0.0
        clock.begin()
        for x, y in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            total += loss.item() * len(y)
            clock.after_step(len(y))
            if given.enough():
                break
        clock.end()
        schedule.step()
        if given.enough():
            break
    finish(given, accelerator.unwrap_model(model))


if __name__ == "__main__":
    main()
