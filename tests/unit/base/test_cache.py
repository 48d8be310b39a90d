"""Code is loaded from what is kept: the folder must be the user's own, and nobody else's to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.base.cache import cache_folder, usable
from paceline.base.errors import RunFailed


def test_it_is_made_for_the_user_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "kept"))
    assert cache_folder("kernels") == tmp_path / "kept" / "kernels"
    assert (tmp_path / "kept" / "kernels").stat().st_mode & 0o777 == 0o700
    assert usable()


def test_what_others_may_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "kept"))
    cache_folder("kernels").chmod(0o777)
    with pytest.raises(RunFailed, match="others may write there: name a folder of your own"):
        cache_folder("kernels")
    assert not usable()
    (tmp_path / "kept" / "kernels").rmdir()
    (tmp_path / "kept" / "kernels").symlink_to(tmp_path)
    with pytest.raises(RunFailed, match="it is a link"):
        cache_folder("kernels")


def test_a_place_that_cannot_be_written_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(RunFailed, match=r"cannot be put there .* name another folder in PACELINE_CACHE"):
        cache_folder("trials")
    assert not usable()
