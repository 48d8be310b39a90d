"""The loop of the reports: TensorDataset and DataLoader in the process itself, operator by operator, `.item()` of every loss."""

from __future__ import annotations

from same import finish, ground
from torch.nn import functional


def main() -> None:
    given = ground()
    device, clock = given.asked.device, given.clock
    model = given.model.to(device)
    optimizer = given.update()
    schedule = given.schedule(optimizer)
    model.train()
    for epoch in given.epochs():
        given.order.set_epoch(epoch)
        total = 0.0
        clock.begin()
        for x, y in given.loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
            clock.after_step(len(y))
            if given.enough():
                break
        clock.end()
        schedule.step()
        if given.enough():
            break
    finish(given, model)


if __name__ == "__main__":
    main()
