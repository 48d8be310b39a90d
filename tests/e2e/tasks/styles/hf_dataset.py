"""A Hugging Face data set of local files, as in the course: a CSV for training, a folder of `save_to_disk` for the test, `map` with a
tokenizer, a DistilBERT from a config. The files lie beside this one."""

from pathlib import Path

from datasets import Dataset, disable_progress_bars, load_from_disk
from transformers import DistilBertConfig, DistilBertForSequenceClassification

HERE = Path(__file__).parent
LENGTH = 8
disable_progress_bars()


def tokenize(examples):
    ids = [[2 + ord(letter) - ord("a") for letter in text][:LENGTH] for text in examples["text"]]
    return {
        "input_ids": [row + [0] * (LENGTH - len(row)) for row in ids],
        "attention_mask": [[1] * len(row) + [0] * (LENGTH - len(row)) for row in ids],
    }


def prepared(dataset):
    dataset = dataset.map(tokenize, batched=True, remove_columns=["text"], keep_in_memory=True)
    return dataset.rename_column("label", "labels").with_format("torch")


def model():
    config = DistilBertConfig(
        vocab_size=30,
        max_position_embeddings=LENGTH,
        n_layers=1,
        n_heads=2,
        dim=8,
        hidden_dim=16,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
        num_labels=2,
    )
    return DistilBertForSequenceClassification(config)


def train_data():
    return prepared(Dataset.from_csv(str(HERE / "words.csv"), cache_dir=str(HERE / "cache"), keep_in_memory=True))


def test_data():
    return prepared(load_from_disk(str(HERE / "words")))
