"""A DCGAN as in PyTorch's tutorial: two optimizers, BatchNorm in both networks, noise that is drawn in the step."""

import torch
from torch import nn

nz, ngf, ndf = 4, 4, 4


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input)


criterion = nn.BCELoss()


def model():
    nets = nn.ModuleDict({"netG": Generator(), "netD": Discriminator()})
    nets.apply(weights_init)
    return nets


def faces(num, seed):
    return (torch.randn(num, 1, 8, 8, generator=torch.Generator().manual_seed(seed)).cumsum(dim=2) / 3).tanh()


def train_data():
    return (faces(48, 1),)


def test_data():
    return (faces(12, 2),)


def optimizers(model, lr):
    return {
        "D": torch.optim.Adam(model["netD"].parameters(), lr=lr, betas=(0.5, 0.999)),
        "G": torch.optim.Adam(model["netG"].parameters(), lr=lr, betas=(0.5, 0.999)),
    }


def step(model, batch, optimizers):
    netG, netD = model["netG"], model["netD"]
    real = batch[0]
    ones, zeros = torch.ones(len(real)).to(real), torch.zeros(len(real)).to(real)
    # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    errD_real = criterion(netD(real).view(-1), ones)
    errD_real.backward()
    noise = torch.randn(len(real), nz, 1, 1).to(real)
    fake = netG(noise)
    errD_fake = criterion(netD(fake.detach()).view(-1), zeros)
    errD_fake.backward()
    optimizers["D"].step()
    # (2) Update G network: maximize log(D(G(z)))
    netG.zero_grad()
    errG = criterion(netD(fake).view(-1), ones)
    errG.backward()
    optimizers["G"].step()
    return {"D": errD_real + errD_fake, "G": errG}
