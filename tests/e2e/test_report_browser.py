"""The report in a real browser: it draws its charts, asks nobody for anything, and can be read without JavaScript."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paceline.commands.report import findings
from paceline.records.study import StudyRecord
from paceline.report import html
from unit.report import synthetic

ARGS = [
    "--no-sandbox", "--headless=new", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
EVIL = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no chromium: the report was not looked at")
        pytest.skip("chromium is not installed (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=found, args=ARGS)
        yield started
        started.close()


@dataclass
class Opened:
    """A page, and everything it asked for or complained about."""

    page: Any
    path: Path
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def _open(browser: Any, study: StudyRecord, path: Path, **options: Any) -> Opened:
    path.write_text(html.render(findings(study), study))
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
    opened = Opened(page, path)
    page.on("request", lambda request: opened.requests.append(request.url))
    page.on("console", lambda message: opened.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.goto(path.as_uri())
    return opened


def _wait_until_drawn(page: Any) -> None:
    page.wait_for_function("document.querySelectorAll('[data-chart]:not(.drawn)').length === 0", timeout=30_000)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyRecord:
    return synthetic.write(synthetic.scaling_study(), tmp_path_factory.mktemp("study"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_drawn_and_nothing_is_fetched(browser: Any, study: StudyRecord, tmp_path: Path, scheme: str) -> None:
    opened = _open(browser, study, tmp_path / "report.html", color_scheme=scheme)
    _wait_until_drawn(opened.page)
    places = opened.page.locator("[data-chart]")
    assert places.count() == 11
    for place in places.all():
        marks = place.locator("svg .mark-line path, svg .mark-symbol path, svg .mark-rect path, svg .mark-rule line")
        assert marks.count() >= 4, place.get_attribute("data-chart")
        assert place.bounding_box()["width"] > 300
    assert opened.page.locator("#headline").is_visible()
    assert opened.page.locator("#headline").inner_text().startswith("Use 2x2")
    assert opened.requests == [opened.path.as_uri()] and opened.complaints == []
    assert opened.path.stat().st_size < 1_500_000
    opened.page.close()


def test_readers_can_choose(browser: Any, study: StudyRecord, tmp_path: Path) -> None:
    """The rank chart shows the chosen cell; the filter narrows the comparisons."""
    opened = _open(browser, study, tmp_path / "report.html")
    _wait_until_drawn(opened.page)
    lines = opened.page.locator("#chart-ranks svg .mark-line path")
    assert lines.count() == 4  # 2x2, the last that completed
    opened.page.locator("#chart-ranks select").select_option("1x2")
    opened.page.wait_for_function("document.querySelectorAll('#chart-ranks svg .mark-line path').length === 2")
    opened.page.locator("input[data-filter]").fill("throughput 2x2")
    assert opened.page.locator("#table-comparisons tbody tr:visible").count() == 1
    opened.page.close()


def test_a_phone_needs_no_sideways_scrolling(browser: Any, study: StudyRecord, tmp_path: Path) -> None:
    opened = _open(browser, study, tmp_path / "report.html", viewport={"width": 390, "height": 800})
    _wait_until_drawn(opened.page)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    opened.page.close()


def test_without_javascript(browser: Any, study: StudyRecord, tmp_path: Path) -> None:
    opened = _open(browser, study, tmp_path / "report.html", java_script_enabled=False)
    assert opened.page.locator("#headline").is_visible()
    drawings = opened.page.locator("noscript svg")
    assert drawings.count() == 11 and all(drawing.is_visible() for drawing in drawings.all())
    assert opened.requests == [opened.path.as_uri()]
    opened.page.close()


def test_hostile_text_does_nothing(browser: Any, tmp_path: Path) -> None:
    cells = [
        synthetic.Cell(f"{name} {EVIL}", {"on": on}, 4.0, broken={0: EVIL}) for name, on in (("a", "1x1"), ("b", "1x2"))
    ]
    made = synthetic.Study(cells, name=f"study {EVIL}", about=EVIL, repeats=4, epochs=2, marks=3)
    opened = _open(browser, synthetic.write(made, tmp_path / "study"), tmp_path / "report.html")
    _wait_until_drawn(opened.page)
    opened.page.locator("#chart-interval-time-training_s svg .mark-symbol path").last.hover()
    opened.page.locator("#vg-tooltip-element").wait_for(state="visible")
    assert opened.page.title().startswith("study <img") and opened.page.locator("img").count() == 0
    assert opened.complaints == []
    opened.page.close()
