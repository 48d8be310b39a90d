"""What a kernel's library depends on: the source and every header of ours below it, or an old library would be loaded for a new one."""

from __future__ import annotations

from pathlib import Path

from paceline.worker.kernels.build import sources


def test_headers_are_part_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "sum.cpp").write_text('#include <cstdint>\n#include "sum_parts.h"\nint sum();\n')
    (tmp_path / "sum_parts.h").write_text('#pragma once\n#include "vectors.h"\n')
    (tmp_path / "vectors.h").write_text('#pragma once\n#include "sum_parts.h"\nstruct V {};\n')  # a ring ends, too
    (tmp_path / "other.h").write_text("struct Other {};\n")
    before = sources("sum", tmp_path)
    assert len(before) == 3
    (tmp_path / "other.h").write_text("struct Another {};\n")
    assert sources("sum", tmp_path) == before
    (tmp_path / "vectors.h").write_text("struct W {};\n")
    assert sources("sum", tmp_path) != before


def test_the_convolution_is_four_files() -> None:
    assert len(sources("conv")) == 4
    assert len(sources("reduce")) == len(sources("gather")) == 1
