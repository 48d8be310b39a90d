"""A causal language model as in Hugging Face's run_clm: padding has the label -100, and the model shifts the labels itself. `Given` takes
the model's own loss, a mean over tokens; `Counted` computes the same one and says what it is divided by."""

import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import paceline

VOCAB, LENGTH, PAD = 17, 10, 0


def text(num, seed):
    """Sequences that count upwards, from anywhere and to anywhere."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(1, VOCAB, (num, 1), generator=generator)
    stride = torch.randint(1, 4, (num, 1), generator=generator)
    lengths = torch.randint(3, LENGTH + 1, (num, 1), generator=generator)
    ids = (first + stride * torch.arange(LENGTH)) % (VOCAB - 1) + 1
    mask = (torch.arange(LENGTH) < lengths).long()
    return [
        {"input_ids": i, "attention_mask": m, "labels": torch.where(m == 1, i, -100)}
        for i, m in zip(torch.where(mask == 1, ids, PAD), mask, strict=True)
    ]


class Given:
    def model(self):
        config = GPT2Config(
            vocab_size=VOCAB,
            n_positions=LENGTH,
            n_embd=16,
            n_layer=2,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=PAD,
            eos_token_id=PAD,
            use_cache=False,
        )
        return GPT2LMHeadModel(config)

    def train_data(self):
        return text(37, 1)

    def test_data(self):
        return text(17, 2)


class Counted(Given):
    def forward(self, model, batch):
        return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits

    def shifted(self, logits, batch):
        labels = batch["labels"][:, 1:]
        return logits[:, :-1].flatten(0, 1), labels.flatten()

    def loss(self, logits, batch):
        predicted, labels = self.shifted(logits, batch)
        return paceline.ratio(
            F.cross_entropy(predicted, labels, ignore_index=-100, reduction="sum"), (labels != -100).sum()
        )

    def score(self, logits, batch):
        predicted, labels = self.shifted(logits, batch)
        counted = labels != -100
        nll = F.cross_entropy(predicted, labels, ignore_index=-100, reduction="sum")
        return {
            "accuracy": (((predicted.argmax(-1) == labels) & counted).sum(), counted.sum()),
            "nll": paceline.ratio(nll, counted.sum()),
        }
