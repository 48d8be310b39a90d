"""Tasks of the sort that once completed with wrong numbers. Each is a class as a user would write it; `test_any_task.py` says what must
become of it."""

from __future__ import annotations

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset

import paceline


def points(num, seed, width=5):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num, width, generator=generator, dtype=torch.float64)
    noise = torch.randn(num, generator=generator, dtype=torch.float64)
    return x, x[:, 0] - 0.5 * x[:, 1] + 0.3 * noise


class Classes:
    """Three classes, one of them rare."""

    def model(self):
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))

    def labels(self, y):
        return (y > 0).long() + (y > 1.6).long()

    def train_data(self):
        x, y = points(53, 1)
        return x, self.labels(y)

    def test_data(self):
        x, y = points(23, 2)
        return x, self.labels(y)


# 1: pairs that are no (sum, count)
class Vae:
    def model(self):
        return nn.ModuleDict({"into": nn.Linear(5, 4), "out": nn.Linear(2, 5)})

    def train_data(self):
        return points(53, 1)

    def test_data(self):
        return points(23, 2)

    def forward(self, model, batch):
        mean, log_variance = model["into"](batch[0]).chunk(2, dim=1)
        return model["out"](mean), mean, log_variance

    def parts(self, outputs, batch):
        rebuilt, mean, log_variance = outputs
        return F.mse_loss(rebuilt, batch[0]), -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).mean()

    def score(self, outputs, batch):
        return F.l1_loss(outputs[0], batch[0])


class VaePair(Vae):
    def loss(self, outputs, batch):
        return self.parts(outputs, batch)


class VaeTerms(Vae):
    def loss(self, outputs, batch):
        rebuilt, kl = self.parts(outputs, batch)
        return {"rebuilt": rebuilt, "kl": kl}


class PrecisionRecall(Classes):
    def score(self, outputs, batch):
        found, there = outputs.argmax(1) == 1, batch[1] == 1
        both = (found & there).sum().double()
        return both / found.sum().clamp_min(1), both / there.sum().clamp_min(1)


# 2: losses and scores that are no means over samples
class VaeSummed(Vae):
    """As in PyTorch's own example."""

    def loss(self, outputs, batch):
        rebuilt, mean, log_variance = outputs
        kl = -0.5 * torch.sum(1 + log_variance - mean**2 - log_variance.exp())
        return F.mse_loss(rebuilt, batch[0], reduction="sum") + kl


class Weighted(Classes):
    def loss(self, outputs, batch):
        return F.cross_entropy(outputs, batch[1], weight=outputs.new_tensor([1.0, 2.0, 9.0]))


class WeightedRatio(Classes):
    def loss(self, outputs, batch):
        weights = outputs.new_tensor([1.0, 2.0, 9.0])
        each = F.cross_entropy(outputs, batch[1], weight=weights, reduction="none")
        return paceline.ratio(each, weights[batch[1]])


class Contrastive(Classes):
    def loss(self, outputs, batch):
        near = F.normalize(outputs, dim=1)
        alike = near @ near.T / 0.5
        same = (batch[1][:, None] == batch[1][None, :]).to(alike.dtype)
        return -(same * alike.log_softmax(dim=1)).sum(1).div(same.sum(1)).mean()

    def score(self, outputs, batch):
        return {"size": outputs.norm(dim=1).mean()}


class F1(Classes):
    def score(self, outputs, batch):
        found, there = outputs.argmax(1) == 1, batch[1] == 1
        return {"f1": 2 * (found & there).sum() / (found.sum() + there.sum()).clamp_min(1)}


class R2:
    def model(self):
        return nn.Linear(5, 1)

    def train_data(self):
        return points(53, 1)

    def test_data(self):
        return points(23, 2)

    def loss(self, outputs, batch):
        return F.smooth_l1_loss(outputs[:, 0], batch[1])

    def score(self, outputs, batch):
        left = ((outputs[:, 0] - batch[1]) ** 2).sum()
        return {"r2": 1 - left / ((batch[1] - batch[1].mean()) ** 2).sum()}


class Tokens:
    """A mean over tokens, some of which are padding."""

    def model(self):
        return nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 11))

    def data(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(1, 11, (num, 7), generator=generator)
        lengths = torch.randint(1, 8, (num, 1), generator=generator)
        return tokens, torch.where(torch.arange(7) < lengths, tokens.roll(-1, 1), torch.tensor(-100))

    def train_data(self):
        return self.data(53, 1)

    def test_data(self):
        return self.data(23, 2)

    def loss(self, outputs, batch):
        return F.cross_entropy(outputs.flatten(0, 1), batch[1].flatten())

    def score(self, outputs, batch):
        counted = batch[1] != -100
        return {"accuracy": (((outputs.argmax(2) == batch[1]) & counted).sum(), counted.sum())}


# 4: streams
class Numbered(IterableDataset):
    def __init__(self, shuffles):
        self.shuffles = shuffles

    def __len__(self):
        return 53

    def __iter__(self):
        x, y = points(53, 1)
        for index in torch.randperm(53).tolist() if self.shuffles else range(53):
            yield x[index], y[index]


class Stream(R2):
    def train_data(self):
        return Numbered(False)


class ShufflingStream(R2):
    """Draws its order from the global generator, which is another on every rank."""

    def train_data(self):
        return Numbered(True)


class EndlessStream(Stream):
    """Without a length: as many samples as the steps take."""

    def train_data(self):
        class Endless(IterableDataset):
            def __iter__(self):
                x, y = points(90, 1)
                yield from zip(x, y, strict=True)

        return Endless()


# 5: state that a graph would freeze
class Annealed(R2):
    def __init__(self):
        self.calls = 0

    def loss(self, outputs, batch):
        self.calls += 1
        return F.mse_loss(outputs[:, 0], batch[1]) + 0.05 * self.calls * outputs.square().mean()


class AnnealedByStep(R2):
    beta = 0.0

    def on_step(self, step, steps):
        self.beta = 0.5 * step / steps

    def loss(self, outputs, batch):
        return F.mse_loss(outputs[:, 0], batch[1]) + self.beta * outputs.square().mean()


# 7: BatchNorm
class Normed(Classes):
    def model(self):  # a bias before BatchNorm has no gradient but rounding, and Adam makes steps of that
        return nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))

    def loss(self, outputs, batch):
        return F.cross_entropy(outputs, batch[1])


class NormedTogether(Normed):
    """With buffers=sync."""


# 8: functions of the file
class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                kept = self.state[parameter].setdefault("mean", torch.zeros_like(parameter))
                parameter.sub_(group["lr"] * (0.9 * kept + 0.1 * parameter.grad).sign())
                kept.mul_(0.99).add_(0.01 * parameter.grad)


class Own(R2):
    def optimizer(self, model, lr):
        return Lion(model.parameters(), lr / 10)

    def schedule(self, step, steps):
        return 1 - step / steps


class Centres(nn.Module):
    def __init__(self):
        super().__init__()
        self.at = nn.Parameter(torch.eye(3) * 0.5)

    def forward(self, outputs, targets):
        return ((outputs - self.at[targets]) ** 2).mean() + F.cross_entropy(outputs, targets)


class LearnedLoss(Classes):
    def __init__(self):
        self.loss = Centres()


class CountingLion(Lion):
    """Its rate falls with a number that a graph would hold for ever."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.made = 0

    def step(self, closure=None):
        self.made += 1
        with torch.no_grad():
            for parameter in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
                parameter.sub_(0.01 / self.made * parameter.grad)


class OwnThatCounts(R2):
    def optimizer(self, model, lr):
        return CountingLion(model.parameters(), lr)


class OwnWithAHook(R2):
    """Weights decay after each step: no part of any formula."""

    def optimizer(self, model, lr):
        made = torch.optim.SGD(model.parameters(), lr)

        def decay(*_):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.99)

        made.register_step_post_hook(decay)
        return made


class NoisyDescent(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["lr"] * (parameter.grad + 0.01 * torch.randn_like(parameter)))


class OwnThatDraws(R2):
    def optimizer(self, model, lr):
        return NoisyDescent(model.parameters(), lr)


class SetAtRandom(R2):
    weight = 1.0

    def on_step(self, step, steps):
        self.weight = 1 + random.random()

    def loss(self, outputs, batch):
        return self.weight * F.mse_loss(outputs[:, 0], batch[1])


class Unfrozen(R2):
    """The first epoch trains the last layer alone."""

    def model(self):
        return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))

    def on_epoch(self, model, epoch, epochs):
        model[0].requires_grad_(epoch > 0)


class Foreign(Classes):
    def training_step(self, batch, index):
        return batch


# 9: outputs that are objects
class Output(dict):
    """As transformers' ModelOutput: a dict whose values are attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Objects(Classes):
    def forward(self, model, batch):
        logits = model(batch[0])
        return Output(loss=F.cross_entropy(logits, batch[1]), logits=logits)

    def loss(self, outputs, batch):
        return outputs.loss

    def score(self, outputs, batch):
        return {"accuracy": (outputs.logits.argmax(1) == batch[1]).double().mean()}


# 10: targets of another shape
class Transposed(R2):
    def model(self):
        return nn.Linear(5, 6)

    def forward(self, model, batch):
        return model(batch[0]).unflatten(1, (2, 3))

    def train_data(self):
        x, _ = points(53, 1)
        return x, x[:, :1].repeat(1, 6).unflatten(1, (3, 2))

    test_data = train_data
    loss = None
    score = None


class Column(R2):
    """[N, 1] against [N]: only the dimension of size 1 goes."""

    loss = None
    score = None


# beside the ten: what else of their kind might pass silently
class Spread(R2):
    """A loss with a normalisation of its own."""

    def loss(self, outputs, batch):
        return ((outputs[:, 0] - batch[1]) ** 2).mean() / batch[1].var()


class Flooded(Classes):
    """A mean, until it falls below a level: only its operations show that."""

    def loss(self, outputs, batch):
        return (F.cross_entropy(outputs, batch[1]) - 0.9).abs() + 0.9


class MetricTerm(Classes):
    """Terms of a loss are summed, and this one is no part of it."""

    def loss(self, outputs, batch):
        return {"ce": F.cross_entropy(outputs, batch[1]), "hits": (outputs.argmax(1) == batch[1]).double().mean()}


class TotalAmongTerms(Classes):
    """As people log it: the total beside its parts, which would count twice."""

    def loss(self, outputs, batch):
        entropy, size = F.cross_entropy(outputs, batch[1]), outputs.square().mean()
        return {"total": entropy + 0.1 * size, "entropy": entropy, "size": size}


class HardestHalf(R2):
    """Of batches with even numbers of samples it may look like a mean."""

    def loss(self, outputs, batch):
        each = (outputs[:, 0] - batch[1]) ** 2
        return each.topk(max(1, len(each) // 2)).values.mean()


class RiskSets(R2):
    """Cox's partial likelihood. Its gradients go through logarithms, and the sum of them is nothing but rounding."""

    def model(self):
        return nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 1, bias=False))

    def loss(self, outputs, batch):
        risk = outputs[batch[1].argsort(descending=True), 0]
        return (torch.logcumsumexp(risk, 0) - risk).mean()


class FewOtherwise(R2):
    def loss(self, outputs, batch):
        return F.mse_loss(outputs[:, 0], batch[1]) * (1.0 if len(outputs) >= 10 else 0.5)


class RareMask(R2):
    """One sample of 453 counts for nothing."""

    def train_data(self):
        x, y = points(453, 1)
        return x, (torch.arange(453) != 400).double(), y

    def test_data(self):
        x, y = points(23, 2)
        return x, torch.ones_like(y), y

    def forward(self, model, batch):
        return model(batch[0])

    def loss(self, outputs, batch):
        return (batch[1] * (outputs[:, 0] - batch[2]) ** 2).sum() / batch[1].sum()

    def score(self, outputs, batch):
        return {"mae": (outputs[:, 0] - batch[2]).abs().mean()}


class Physics(R2):
    """A loss with a gradient of its own, in evaluation too."""

    def model(self):
        return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, model, batch):
        x = batch[0].clone().requires_grad_()
        return model(x), x

    def loss(self, outputs, batch):
        (slope,) = torch.autograd.grad(outputs[0].sum(), outputs[1], create_graph=True)
        return F.mse_loss(outputs[0][:, 0], batch[1]) + 0.1 * slope.square().sum(1).mean()

    def score(self, outputs, batch):
        return {"mae": (outputs[0][:, 0] - batch[1]).abs().mean()}


class MovingBaseline(R2):
    """A number of the class, which its object hides as soon as it is set."""

    level = 0.0

    def loss(self, outputs, batch):
        each = (outputs[:, 0] - batch[1]).square()
        self.level = 0.9 * self.level + 0.1 * float(each.mean().detach())
        return ((each - self.level) * outputs[:, 0]).mean()


class ModelOfData(R2):
    """model() needs what train_data() has found out."""

    def train_data(self):
        x, y = points(53, 1)
        self.width = x.shape[1]
        return x, y

    def model(self):
        return nn.Linear(self.width, 1)


class ClippedByHook(R2):
    def model(self):
        model = nn.Linear(5, 1)
        model.weight.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
        return model


class ClippedInPlace(R2):
    """By a hook that is called once the gradient is in its place."""

    def model(self):
        def clip(weight):
            weight.grad.clamp_(-0.05, 0.05)

        model = nn.Linear(5, 1)
        model.weight.register_post_accumulate_grad_hook(clip)
        return model


class HalvedByHook(R2):
    def model(self):
        model = nn.Linear(5, 1)
        model.weight.register_hook(lambda gradient: gradient / 2)
        return model


class SeededInside(Classes):
    def forward(self, model, batch):
        torch.manual_seed(0)
        return F.dropout(model(batch[0]), 0.3, training=model.training)


class CountingData(Dataset):
    def __init__(self):
        self.x, self.y = points(53, 1)
        self.fetched = 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        self.fetched += 1
        return self.x[index] * (1 + 0.01 * self.fetched), self.y[index]


class Counted(R2):
    """Its samples follow from how many were fetched before: by nobody else."""

    def train_data(self):
        return CountingData()


class KeptOutputs(Classes):
    """A hook keeps what a layer gives until the loss has used it."""

    def model(self):
        model = super().model()
        self.kept = []
        model[1].register_forward_hook(lambda module, given, output: self.kept.append(output))
        return model

    def loss(self, outputs, batch):
        more = sum(output.abs().mean() for output in self.kept)
        self.kept.clear()
        return F.cross_entropy(outputs, batch[1]) + 0.1 * more


class OneOfManyParts(R2):
    """Three parts, and no forward that says which the model is given."""

    def train_data(self):
        x, y = points(53, 1)
        return x, y.abs(), y

    test_data = train_data


class Lazy(R2):
    def model(self):
        return nn.LazyLinear(1)


class Detached(Classes):
    def loss(self, outputs, batch):
        return F.cross_entropy(outputs, batch[1]).detach()


class RunningScore(Classes):
    """A metric that is never reset."""

    def __init__(self):
        self.seen = []

    def score(self, outputs, batch):
        self.seen.append((outputs.argmax(1) == batch[1]).double())
        return {"accuracy": torch.cat(self.seen).mean()}


class Queue(Classes):
    """A memory of earlier batches, which an evaluation would fill too."""

    def __init__(self):
        self.bank = []

    def loss(self, outputs, batch):
        self.bank = [*self.bank, outputs.detach().mean(0)][-4:]
        return F.cross_entropy(outputs, batch[1]) + (outputs.mean(0) - torch.stack(self.bank).mean(0)).square().sum()


class Closures(Classes):
    def optimizer(self, model, lr):
        return torch.optim.LBFGS(model.parameters(), lr)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 1)
        self.register_buffer("centre", torch.zeros(5))

    def forward(self, x):
        if self.training:
            self.centre.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.layer(x - self.centre)


class RunningCentre(R2):
    def model(self):
        return Counter()


class WholeScores(Classes):
    def score(self, outputs, batch):
        return {"table": torch.bincount(3 * batch[1] + outputs.argmax(1), minlength=9)}

    def score_of(self, sums):
        table = sums["table"].reshape(3, 3)
        return {
            "accuracy": float(table.trace()) / float(table.sum()),
            "iou": float(table[1, 1]) / float(table[1].sum() + table[:, 1].sum() - table[1, 1]),
        }

    def score_all(self, outputs, targets):
        return {"last": outputs[-1, 0], "rank": outputs[:, 1].argsort().double().std()}


class Rows(Dataset):
    def __init__(self, seed, num):
        self.x, self.y = points(num, seed)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.y[index]}


class Named(R2):
    def train_data(self):
        return Rows(1, 53)

    def test_data(self):
        return Rows(2, 23)

    def forward(self, model, batch):
        return model(batch["x"])

    def loss(self, outputs, batch):
        return paceline.total((outputs[:, 0] - batch["y"]) ** 2)

    def score(self, outputs, batch):
        return {
            "worst": (outputs[:, 0] - batch["y"]).abs().max(),
            "within": paceline.total((outputs[:, 0] - batch["y"]).abs() < 1),
        }


class NamedArrays(Named):
    """A dict of arrays, which are fetched as one tensor each."""

    def train_data(self):
        x, y = points(53, 1)
        return {"x": x.numpy(), "y": y.numpy()}

    def test_data(self):
        x, y = points(23, 2)
        return {"x": x.tolist(), "y": y}


class Gan:
    def model(self):
        return nn.ModuleDict({"g": nn.Linear(5, 2), "d": nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))})

    def train_data(self):
        x, y = points(53, 1)
        return x, torch.stack([y, y**2], 1)

    def test_data(self):
        return points(23, 2)

    def optimizers(self, model, lr):
        return {
            "d": torch.optim.Adam(model["d"].parameters(), lr),
            "g": torch.optim.SGD(model["g"].parameters(), lr, momentum=0.9),
        }

    def step(self, model, batch, optimizers):
        fake = model["g"](batch[0])
        d_loss = F.softplus(model["d"](fake.detach())).mean() + F.softplus(-model["d"](batch[1])).mean()
        optimizers["d"].zero_grad()
        d_loss.backward()
        optimizers["d"].step()
        g_loss = F.softplus(-model["d"](fake)).mean()
        optimizers["g"].zero_grad()
        g_loss.backward()
        optimizers["g"].step()
        return {"d": d_loss, "g": g_loss}

    def schedule(self, step, steps):
        return 1 / (1 + step)
