"""Knowledge distillation as in PyTorch's tutorial: a frozen teacher that the task holds and the model does not, soft and hard targets."""

import torch
from torch import nn
from torch.nn import functional as F


class Distillation:
    def __init__(self, T: float = 2.0, soft_target_loss_weight: float = 0.25):
        self.T, self.soft = T, soft_target_loss_weight
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(11)
            self.teacher = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
        self.teacher.eval()
        for parameter in self.teacher.parameters():
            parameter.requires_grad = False

    def model(self):
        return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))

    def data(self, num, seed):
        x = torch.randn(num, 6, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            return x, self.teacher(x).argmax(dim=1)

    def train_data(self):
        return self.data(47, 1)

    def test_data(self):
        return self.data(22, 2)

    def forward(self, student, batch):
        inputs, _ = batch
        with torch.no_grad():
            teacher_logits = self.teacher.to(inputs)(inputs)
        return student(inputs), teacher_logits

    def loss(self, outputs, batch):
        student_logits, teacher_logits = outputs
        soft_targets = F.softmax(teacher_logits / self.T, dim=-1)
        soft_prob = F.log_softmax(student_logits / self.T, dim=-1)
        distilled = torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0] * (self.T**2)
        return self.soft * distilled + (1 - self.soft) * F.cross_entropy(student_logits, batch[1])

    def score(self, outputs, batch):
        return {"accuracy": (outputs[0].argmax(dim=1) == batch[1]).double().mean()}
