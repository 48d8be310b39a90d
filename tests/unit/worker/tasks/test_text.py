"""The made-up language: the same text every time, with the entropy that is stated; and the user's own files."""

from __future__ import annotations

import collections
import hashlib
import math
import re
from pathlib import Path

import numpy as np
import pytest

from paceline.base.errors import BadInput
from paceline.worker.tasks import text


def sentences(num: int) -> list[re.Match[str]]:
    """Each taken apart into its choices: adjective, noun, s, verb, s, preposition, adjective, noun, s. No word is of two kinds."""
    whole = text.generate(num, stream=1).decode()
    whole = whole[: whole.rindex(". ") + 2]
    noun, verb, how, where = (
        "|".join(text._language()[kind].words) for kind in ("noun", "verb", "adjective", "preposition")
    )
    named = rf"the (?:({how}) )?({noun})(s?)"
    found = list(re.finditer(rf"{named} ({verb})(s?) (?:({where}) )?{named}\. ", whole))
    assert "".join(match[0] for match in found) == whole
    return found


def test_it_is_the_same_on_every_machine() -> None:
    assert text.generate(40, stream=1) == b"the vumapu narolus the bineme. the lozes"
    digest = hashlib.sha256(text.generate(100_000, stream=1)).hexdigest()
    assert digest[:16] == "e2f3a4e80f65983a"


def test_more_text_begins_with_less_text() -> None:
    assert text.generate(200_000, stream=2).startswith(text.generate(1_000, stream=2))
    assert text.generate(1_000, stream=1) != text.generate(1_000, stream=2)


def test_sentences_have_one_grammar_and_verbs_agree() -> None:
    assert all(bool(match[3]) != bool(match[5]) for match in sentences(300_000))
    words = [word for kind in text._language().values() for word in kind.words]
    assert len(words) == len(set(words)) and not any(word.endswith("s") for word in words)


def test_the_stated_entropy_is_that_of_the_choices() -> None:
    """Counted in the text: bits of the choices seen, over bytes. Nothing is assumed about weights or lengths."""
    matches = sentences(2_000_000)

    def bits(values: list[str | None]) -> float:
        counts = collections.Counter(values)
        return -sum(num / len(values) * math.log2(num / len(values)) for num in counts.values())

    # An absent adjective or preposition is one more value of that choice; the verb's ending is no choice.
    each = [bits([match[group] for match in matches]) for group in (1, 2, 3, 4, 6, 7, 8, 9)]
    assert text.entropy() == pytest.approx(
        sum(each) * len(matches) / sum(len(match[0]) for match in matches), rel=0.005
    )
    assert text.entropy() == pytest.approx(0.647, abs=0.001)


def test_windows_share_no_byte() -> None:
    found = text.windows(bytes(range(11)), 3)
    assert found.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert text.windows(b"ab", 3).shape == (0, 3)


def test_reads_the_txt_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"second\xff")
    (tmp_path / "a.txt").write_bytes(b"first ")
    (tmp_path / "c.md").write_bytes(b"not this")
    assert text.read(tmp_path) == b"first second\xff"
    assert np.array_equal(text.windows(text.read(tmp_path), 13)[0], np.frombuffer(b"first second\xff", np.uint8))


def test_folder_missing_a_file_or_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, words in {
        "none": "no such folder",
        "file": "is a file; name the folder",
        ".": "no .txt file in it",
    }.items():
        with pytest.raises(BadInput, match=words):
            text.read(tmp_path / name)
