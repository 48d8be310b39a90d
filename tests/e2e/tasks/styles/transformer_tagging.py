"""Tagging of tokens with torch's TransformerEncoder, as in a research repository: a collate that pads to the longest, a padding mask, and a
mean over the tokens that have a tag (`ignore_index`)."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

import paceline

PAD, IGNORE, NUM_TAGS = 0, -100, 3


class Sentences(Dataset):
    def __init__(self, num, seed, lengths=None):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 10, (num,), generator=generator).tolist() if lengths is None else lengths
        self.tokens = [torch.randint(1, 14, (length,), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"tokens": tokens, "labels": tokens % NUM_TAGS}


class Tagger(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.embedding = nn.Embedding(14, 8, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.classifier = nn.Linear(8, NUM_TAGS)

    def forward(self, tokens, padding_mask):
        return self.classifier(self.encoder(self.embedding(tokens), src_key_padding_mask=padding_mask))


class Padded:
    """`collate` pads to the longest of a batch, so ranks have tensors of different widths. `to`: all to one length instead."""

    def __init__(self, dropout: float = 0.0, to: int = 0):
        self.dropout, self.to = dropout, to
        self.criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)

    def model(self):
        return Tagger(self.dropout)

    def train_data(self):
        return Sentences(44, 1)

    def test_data(self):
        return Sentences(18, 2)

    def collate(self, samples):
        def padded(name, value):
            rows = [sample[name] for sample in samples]
            made = pad_sequence(rows, batch_first=True, padding_value=value)
            return nn.functional.pad(made, (0, max(0, self.to - made.shape[1])), value=value)

        return {"tokens": padded("tokens", PAD), "labels": padded("labels", IGNORE)}

    def forward(self, model, batch):
        return model(batch["tokens"], batch["tokens"] == PAD)

    def loss(self, outputs, batch):
        return self.criterion(outputs.flatten(0, 1), batch["labels"].flatten())

    def score(self, outputs, batch):
        counted = batch["labels"] != IGNORE
        right = (outputs.argmax(dim=-1) == batch["labels"]) & counted
        return {"accuracy": paceline.ratio(right.sum(), counted.sum())}


class Counted(Padded):
    def loss(self, outputs, batch):
        tags = batch["labels"].flatten()
        each = nn.functional.cross_entropy(outputs.flatten(0, 1), tags, ignore_index=IGNORE, reduction="sum")
        return paceline.ratio(each, (tags != IGNORE).sum())


class RarelyLonger(Padded):
    """Of a few sentences that no look at samples comes across."""

    def train_data(self):
        return Sentences(44, 1, [9 if index in (20, 21) else 5 for index in range(44)])


class LongerAtTheEnd(Counted):
    """A score of the whole test set, whose sentences are of one length on each of two ranks."""

    def test_data(self):
        return Sentences(18, 2, [5] * 9 + [9] * 9)

    def score_all(self, outputs, targets):
        return {"certain": outputs.softmax(dim=-1).amax(dim=-1).median()}
