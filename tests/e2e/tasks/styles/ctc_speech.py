"""Speech recognition as in the CTC tutorials: spectrograms and transcripts of different lengths, padded by collate."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

BLANK = 0


class Utterances(Dataset):
    def __init__(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        self.samples = []
        for _ in range(num):
            labels = torch.randint(1, 5, (int(torch.randint(2, 5, (1,), generator=generator)),), generator=generator)
            spectrogram = nn.functional.one_hot(labels, 6).float().repeat_interleave(3, dim=0)
            self.samples.append((spectrogram + 0.2 * torch.randn(spectrogram.shape, generator=generator), labels))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def collate(data):
    spectrograms = pad_sequence([spec for spec, _ in data], batch_first=True)
    labels = pad_sequence([label for _, label in data], batch_first=True)
    input_lengths = torch.tensor([len(spec) for spec, _ in data])
    label_lengths = torch.tensor([len(label) for _, label in data])
    return spectrograms, labels, input_lengths, label_lengths


class SpeechModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 8, 3, padding=1)
        self.classifier = nn.Linear(8, 5)

    def forward(self, x):
        x = self.conv(x.transpose(1, 2)).relu().transpose(1, 2)
        return self.classifier(x).log_softmax(dim=-1)


ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)


def model():
    return SpeechModel()


def train_data():
    return Utterances(42, 1)


def test_data():
    return Utterances(17, 2)


def forward(model, batch):
    return model(batch[0])


def loss(outputs, batch):
    _, labels, input_lengths, label_lengths = batch
    return ctc(outputs.transpose(0, 1), labels, input_lengths, label_lengths)


def score(outputs, batch):
    """Of the frames, how many say something."""
    frames = torch.arange(outputs.shape[1], device=outputs.device) < batch[2][:, None]
    return {"spoken": (((outputs.argmax(dim=-1) != BLANK) & frames).sum(), frames.sum())}
