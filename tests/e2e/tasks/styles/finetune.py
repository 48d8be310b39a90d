"""Fine-tuning as in PyTorch's transfer-learning tutorial: a frozen backbone, two parameter groups, a one-cycle schedule. `cycled`: with the
momentum cycled too, which is torch's default and not taken."""

import torch
from torch import nn


class Task:
    def __init__(self, cycled: bool = False):
        self.cycled = cycled

    def model(self):
        backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        state = {
            name: torch.randn(tensor.shape, generator=torch.Generator().manual_seed(index))
            for index, (name, tensor) in enumerate(backbone.state_dict().items())
        }
        backbone.load_state_dict(state)
        for param in backbone.parameters():
            param.requires_grad = False
        neck, fc = nn.Linear(16, 8), nn.Linear(8, 2)
        return nn.Sequential(backbone, neck, nn.Tanh(), fc)

    def data(self, num, seed):
        x = torch.randn(num, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
        return x, (x.mean(dim=(1, 2, 3)) > 0).long()

    def train_data(self):
        return self.data(46, 1)

    def test_data(self):
        return self.data(20, 2)

    def optimizer(self, model, lr):
        return torch.optim.SGD(
            [{"params": model[1].parameters(), "lr": lr / 10}, {"params": model[3].parameters()}], lr=lr, momentum=0.9
        )

    def schedule(self, optimizer, steps):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=[group["lr"] for group in optimizer.param_groups],
            total_steps=steps,
            cycle_momentum=self.cycled,
        )
