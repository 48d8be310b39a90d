"""Names of cells in the drawn charts: whole, however long they are, and inside the picture."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from paceline.commands.report import findings
from paceline.report import charts, drawing
from unit.report import synthetic

_SVG = "{http://www.w3.org/2000/svg}"
_LETTER = 6  # pixels: about what a letter of this size takes


def _texts(node: ElementTree.Element, x: float = 0.0) -> Iterator[tuple[float, str, list[str]]]:
    """(where it begins or ends, which of the two, its lines) of every text below."""
    if moved := re.match(r"translate\(([-.\d]+)", node.get("transform", "")):
        x += float(moved[1])
    if node.tag == f"{_SVG}text":
        yield x, node.get("text-anchor", "start"), [span.text or "" for span in node.iter() if span.text]
    for child in node:
        yield from _texts(child, x)


def test_the_longest_name_is_whole_and_inside_the_drawing(tmp_path: Path) -> None:
    axes = ("1x1", "2x2"), ("adamw", "rmsprop"), (f"from-pixels-{'7' * 40}", "long-name-of-an-encoder")
    cells = [
        synthetic.Cell(f"on={on} optimizer={rule} the_encoder_of_the_task={name}", {"on": on, "optimizer": rule}, 10.0)
        for on, rule, name in itertools.product(*axes)
    ]
    study = synthetic.write(synthetic.Study(cells, swept=("on", "optimizer"), repeats=2), tmp_path)
    drawn = drawing.drawings(charts.gallery(findings(study), study), budget=10**8)
    for name in ("interval-time-training_s", "loss", "speedup", "training"):
        root = ElementTree.fromstring(drawn[name])
        width = float(root.get("width", 0))
        texts = list(_texts(root))
        for cell in cells:
            where = [text for text in texts if "".join(text[2]).replace(" ", "") == cell.label.replace(" ", "")]
            assert where, (name, cell.label)
            if name == "speedup":  # turned: what is whole there is as high as it is long
                continue
            for x, anchor, lines in where:
                reach = max(map(len, lines)) * _LETTER
                assert x - reach >= 0 if anchor == "end" else x + reach <= width, (name, lines)
        assert "…" not in drawn[name]
