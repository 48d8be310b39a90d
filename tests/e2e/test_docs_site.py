"""The documentation as a site: it builds without the network, every link and anchor leads somewhere, and pages ask nobody for anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from documents import ROOT

# Attributes that a browser follows by itself; a link of the reader's own is `a`.
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


def _find(program: str, why: str) -> str:
    path = shutil.which(program, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI has no {program}: {why}")
        pytest.skip(f"{program} is not installed (make setup brings it): {why}")
    return path


@dataclass
class Page(HTMLParser):
    """What a page loads, links to and can be linked at."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.text = self.path.read_text()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = {key: value or "" for key, value in attrs}
        self.ids |= {have[key] for key in ("id", "name") if key in have}
        if tag == "a" and "href" in have:
            self.links.append(have["href"])
        elif have.get(LOADED.get(tag, "")) and have.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(have[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is written into the clone; cut off from every network where the system allows it."""
    zensical = _find("zensical", "the site was not built")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    config = (ROOT / "zensical.toml").read_text()
    assert 'paths = ["src"]' in config
    (folder / "zensical.toml").write_text(config.replace('paths = ["src"]', f'paths = ["{ROOT / "src"}"]'))
    alone = ["unshare", "--map-root-user", "--net"]
    cut = shutil.which(alone[0]) and subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    build = [zensical, "build", "--strict"]
    done = subprocess.run([*alone, *build] if cut else build, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_document_is_a_page(site: Path, pages: dict[Path, Page]) -> None:
    folder = ROOT / "docs"
    assert set(pages) == {site / path.relative_to(folder).with_suffix(".html") for path in folder.rglob("*.md")}


def test_every_link_and_anchor_leads_somewhere(pages: dict[Path, Page]) -> None:
    broken: list[str] = []
    for path, page in pages.items():
        for link in page.links:
            where, _, anchor = link.partition("#")
            if "://" in where or where.startswith("mailto:"):
                continue
            target = (path.parent / unquote(where)).resolve() if where else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].ids if target in pages else set[str]()
            if not target.exists() or (anchor and target in pages and unquote(anchor) not in known):
                broken.append(f"{path.name}: {link}")
    assert not broken, "\n".join(broken)
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_pages_load_nothing_from_elsewhere(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert page.loaded, path.name
        for loaded in page.loaded:
            assert "//" not in loaded and (path.parent / loaded.partition("?")[0]).exists(), f"{path.name}: {loaded}"


def test_the_python_names_are_there_with_their_signatures(pages: dict[Path, Page]) -> None:
    (page,) = (page for path, page in pages.items() if path.name == "python-api.html")
    assert {
        "paceline.run",
        "paceline.run_study",
        "paceline.load",
        "paceline.Record",
        "paceline.Record.metric",
    } <= page.ids


def test_a_browser_asks_nobody(site: Path) -> None:
    chromium = _find("chromium", "the site was not looked at")
    from playwright.sync_api import sync_playwright

    requests: list[str] = []
    with sync_playwright() as play:
        browser: Any = play.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        page = browser.new_page()
        page.on("request", lambda request: requests.append(request.url))
        for name in ("index.html", "graphs.html", "reference/python-api.html"):
            page.goto((site / name).as_uri())
            page.wait_for_load_state("networkidle")
            assert page.locator("h1").count() == 1, name
        browser.close()
    assert requests and all(url.startswith(("file:", "data:", "blob:")) for url in requests), requests
