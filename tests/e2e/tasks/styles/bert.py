"""Text classification as in Hugging Face's examples: a tokenizer, a data set of dicts, a model from a config that computes its own loss.
Nothing else is defined: the batch goes in by its names, and the loss is the model's."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification

GOOD, BAD = ["good", "fine", "great", "lovely", "superb"], ["bad", "poor", "awful", "dull", "boring"]
FILLER = ["the", "film", "was", "and", "a", "story", "with", "some", "actors", "in", "it"]
VOCAB = {word: index for index, word in enumerate(["[PAD]", "[CLS]", "[SEP]", *GOOD, *BAD, *FILLER])}
MAX_LENGTH = 12


def tokenize(text):
    ids = [VOCAB["[CLS]"], *(VOCAB[word] for word in text.split()), VOCAB["[SEP]"]][:MAX_LENGTH]
    padding = MAX_LENGTH - len(ids)
    return {"input_ids": ids + [0] * padding, "attention_mask": [1] * len(ids) + [0] * padding}


class ReviewDataset(Dataset):
    def __init__(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda words: words[int(torch.randint(len(words), (1,), generator=generator))]  # noqa: E731
        self.labels = [int(torch.randint(2, (1,), generator=generator)) for _ in range(num)]
        lengths = torch.randint(2, 8, (num,), generator=generator).tolist()
        texts = [
            " ".join([*(draw(FILLER) for _ in range(length)), draw(GOOD if label else BAD)])
            for label, length in zip(self.labels, lengths, strict=True)
        ]
        self.encodings = [tokenize(text) for text in texts]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        item = {key: torch.tensor(value) for key, value in self.encodings[idx].items()}
        item["labels"] = torch.tensor(self.labels[idx])
        return item


def model(dropout: float = 0.1):
    config = BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=MAX_LENGTH,
        num_labels=2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return BertForSequenceClassification(config)


def train_data():
    return ReviewDataset(41, 1)


def test_data():
    return ReviewDataset(19, 2)


def optimizer(model, lr):
    no_decay = ("bias", "LayerNorm.weight")
    decays = [p for n, p in model.named_parameters() if not n.endswith(no_decay)]
    others = [p for n, p in model.named_parameters() if n.endswith(no_decay)]
    return torch.optim.AdamW([{"params": decays, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=lr)
