"""Sequences of different lengths as in PyTorch's text tutorials: a collate that pads, a packed LSTM, the last hidden state."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import Dataset


class Sequences(Dataset):
    def __init__(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(2, 9, (num,), generator=generator).tolist()
        self.sequences = [torch.randint(1, 12, (length,), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, index):
        tokens = self.sequences[index]
        return tokens, int((tokens > 6).sum() * 2 > len(tokens))


def collate(samples):
    sequences, labels = zip(*samples, strict=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return pad_sequence(sequences, batch_first=True), lengths, torch.tensor(labels)


class LSTMClassifier(nn.Module):
    def __init__(self, vocab_size=12, embed_dim=6, hidden_dim=8, num_classes=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=0)
        self.lstm = nn.LSTM(embed_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden_dim, num_classes)

    def forward(self, text, lengths):
        packed = pack_padded_sequence(self.embedding(text), lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        return self.fc(torch.cat([hidden[-2], hidden[-1]], dim=1))


def model():
    return LSTMClassifier()


def train_data():
    return Sequences(45, 1)


def test_data():
    return Sequences(19, 2)
