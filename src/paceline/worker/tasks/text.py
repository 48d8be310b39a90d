"""Text to learn from: the user's .txt files as bytes, or sentences of a small made-up language whose entropy is known.
It must not import torch or know any setting; the language has a seed of its own, so every run reads the same text."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline.base.errors import BadInput

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_SEED = 256
_CONSONANTS, _VOWELS = "bdfgklmnprtvz", "aeiou"  # no "s": that is the ending, and must be told from the word
_NUM = {"noun": 64, "verb": 32, "adjective": 32, "preposition": 8}
_BLOCK = 1024  # sentences drawn at a time


class _Words(NamedTuple):
    """The words of one kind, the frequent ones first."""

    words: tuple[str, ...]
    limits: np.ndarray[Any, np.dtype[np.int64]]  # running sums of whole-number weights: exact on every machine

    @property
    def shares(self) -> list[float]:
        weights = np.diff(self.limits, prepend=0)
        return [int(weight) / int(self.limits[-1]) for weight in weights]

    @property
    def bits(self) -> float:
        return -sum(share * math.log2(share) for share in self.shares)

    @property
    def length(self) -> float:
        return sum(share * len(word) for share, word in zip(self.shares, self.words, strict=True))

    def draw(self, rng: np.random.Generator, num: int) -> list[str]:
        places = np.searchsorted(self.limits, rng.integers(self.limits[-1], size=num), side="right")
        return [self.words[place] for place in places]


@cache
def _language() -> dict[str, _Words]:
    """Words of two or three syllables, no two alike in the whole language; the k-th of its kind has weight 1/k."""
    rng = _rng(stream=0)
    made: dict[str, None] = {}
    while len(made) < sum(_NUM.values()):
        letters = [
            (_CONSONANTS[int(rng.integers(len(_CONSONANTS)))], _VOWELS[int(rng.integers(len(_VOWELS)))])
            for _ in range(2 + int(rng.integers(2)))
        ]
        made["".join(consonant + vowel for consonant, vowel in letters)] = None
    words = iter(made)
    return {
        kind: _Words(
            tuple(next(words) for _ in range(num)),
            np.cumsum([round(10_000 / rank) for rank in range(1, num + 1)], dtype=np.int64),
        )
        for kind, num in _NUM.items()
    }


def generate(num: int, *, stream: int) -> bytes:
    """The first `num` bytes of a stream of sentences: NAMED verb [preposition] NAMED, with NAMED: the [adjective] noun.

    A plural noun ends in s; its verb then does not. So the end of a verb can only be known by looking back.
    """
    rng = _rng(stream=stream)
    pieces: list[str] = []
    length = 0
    while length < num:
        sentences = _sentences(rng)
        pieces.append(sentences)
        length += len(sentences)
    return "".join(pieces).encode()[:num]


def _sentences(rng: np.random.Generator) -> str:
    """A block of them. Whole columns are drawn at once, in a fixed order, so the text does not depend on how much is asked."""
    language = _language()
    subject, subject_many = _named(rng, language)
    verbs = language["verb"].draw(rng, _BLOCK)
    with_preposition = rng.integers(2, size=_BLOCK)
    prepositions = language["preposition"].draw(rng, _BLOCK)
    other, _ = _named(rng, language)
    return "".join(
        f"{who} {verb}{'' if many else 's'} {f'{preposition} ' if there else ''}{whom}. "
        for who, many, verb, there, preposition, whom in zip(
            subject, subject_many, verbs, with_preposition, prepositions, other, strict=True
        )
    )


def _named(rng: np.random.Generator, language: dict[str, _Words]) -> tuple[list[str], list[int]]:
    described = rng.integers(2, size=_BLOCK).tolist()
    adjectives = language["adjective"].draw(rng, _BLOCK)
    nouns = language["noun"].draw(rng, _BLOCK)
    many = rng.integers(2, size=_BLOCK).tolist()
    rows = zip(described, adjectives, nouns, many, strict=True)
    return [f"the {f'{how} ' if said else ''}{noun}{'s' if more else ''}" for said, how, noun, more in rows], many


def entropy() -> float:
    """Bits per byte of the generated text: no model can do better in the long run.

    Every choice can be read off a sentence again, so its information is the sum of its choices' and nothing is lost:
    bits of a sentence over bytes of a sentence, both in the mean.
    """
    language = _language()
    noun, verb, how, where = (language[kind] for kind in ("noun", "verb", "adjective", "preposition"))
    named_bits = 1 + how.bits / 2 + noun.bits + 1
    named_length = len("the ") + (how.length + 1) / 2 + noun.length + 1 / 2
    bits = 2 * named_bits + verb.bits + 1 + where.bits / 2
    length = 2 * named_length + 1 + verb.length + 1 / 2 + 1 + (where.length + 1) / 2 + len(". ")
    return bits / length


def read(folder: Path) -> bytes:
    """All .txt files of a folder, by name, one after the other."""
    if not folder.exists():
        raise BadInput(f"data={folder}: no such folder")
    if not folder.is_dir():
        raise BadInput(f"data={folder}: is a file; name the folder that holds the .txt files")
    paths = sorted(path for path in folder.glob("*.txt") if path.is_file())
    if not paths:
        raise BadInput(f"data={folder}: no .txt file in it")
    try:
        return b"".join(path.read_bytes() for path in paths)
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be read ({error.strerror or error})") from None


def windows(text: bytes, length: int) -> Bytes:
    """[n, length]: the text cut into pieces that share no byte; what is left at the end goes."""
    num = len(text) // length
    return np.frombuffer(text, dtype=np.uint8, count=num * length).reshape(num, length)


def lengths(num: int, least: int, most: int, *, stream: int) -> list[int]:
    """How long each of `num` windows is, all lengths alike. Drawn one after the other: more windows change no earlier one."""
    return _rng(stream=stream).integers(least, most, size=num, endpoint=True).tolist()


def _rng(*, stream: int) -> np.random.Generator:
    """Words, training and test text, and lengths of both have streams of their own: `num_train` must not change the test."""
    return np.random.Generator(np.random.PCG64([_SEED, stream]))
