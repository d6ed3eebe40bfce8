"""The documentation as a site: built without a fault, and read in a browser without a network."""

import functools
import gzip
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.support.ui import WebDriverWait

from contract_tests.end_to_end.chromium import chromium, complaints, requests_of, skip_without
from tools.site import __main__ as site
from tools.site import pages

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60
PICTURES = {
    f"{page.relative_to(ROOT)}#{number}": picture
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for number, picture in enumerate(
        re.findall(r"^```mermaid\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL), 1
    )
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    skip_without()
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the built site is served."""
    if find_spec("zensical") is None:
        pytest.skip("zensical is not installed; make docs installs it")
    folder = tmp_path_factory.mktemp("built") / "site"
    assert site.build(ROOT, folder) == ""
    handler = functools.partial(Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def until(browser: Chrome, script: str) -> Any:
    return WebDriverWait(browser, DEADLINE_S).until(lambda b: b.execute_script(f"return {script}"))


@pytest.mark.nightly
def test_every_picture_is_understood(browser: Chrome, tmp_path: Path) -> None:
    """By Mermaid itself, so that a mistake in one is found before the site is built."""
    packed = (ROOT / "tools" / "site" / "mermaid.min.js.gz").read_bytes()
    (tmp_path / "mermaid.js").write_bytes(gzip.decompress(packed))
    (tmp_path / "page.html").write_text("<!doctype html><script src=mermaid.js></script>")
    browser.get((tmp_path / "page.html").as_uri())
    parse = """const done = arguments[arguments.length - 1];
        mermaid.parse(arguments[0]).then(() => done(''), (error) => done(error.message))"""
    assert len(PICTURES) >= 4
    assert browser.execute_async_script(parse, "flowchart TD\n  a --> ")
    faults = {name: browser.execute_async_script(parse, text) for name, text in PICTURES.items()}
    assert not {name: fault for name, fault in faults.items() if fault}


@pytest.mark.nightly
def test_the_front_page_leads_to_the_guides(base: str, browser: Chrome) -> None:
    requests_of(browser)
    browser.get(base)
    assert until(browser, "document.querySelector('h1').textContent").startswith("Menagerie")
    links = "Array.from(document.querySelectorAll('nav a'), each => each.textContent.trim())"
    assert {"Architecture", "Glossary", "API reference", "PostgreSQL"} <= set(until(browser, links))
    asked = {urlsplit(one["url"]).netloc for one in requests_of(browser)}
    assert asked == {urlsplit(base).netloc}
    assert complaints(browser) == []


@pytest.mark.nightly
def test_a_guide_shows_its_pictures(base: str, browser: Chrome) -> None:
    requests_of(browser)
    browser.get(f"{base}/architecture.html")
    wanted = sum(name.startswith("docs/architecture.md") for name in PICTURES)
    # What is drawn has taken the place of its text.
    drawn = "document.querySelectorAll('div.mermaid').length"
    WebDriverWait(browser, DEADLINE_S).until(
        lambda b: b.execute_script(f"return {drawn}") == wanted
    )
    heights = "Array.from(document.querySelectorAll('div.mermaid'), each => each.clientHeight)"
    assert min(until(browser, heights)) > 100
    asked = {urlsplit(one["url"]).netloc for one in requests_of(browser)}
    assert asked == {urlsplit(base).netloc}
    assert complaints(browser) == []


@pytest.mark.nightly
def test_the_search_finds_a_term(base: str, browser: Chrome) -> None:
    browser.get(base)
    until(browser, "document.querySelector('h1')")
    browser.execute_script("document.querySelector('button.md-search__button').click()")
    # The theme keeps its search in a shadow root, whose host has the focus as seen from outside.
    until(browser, "document.activeElement.shadowRoot?.activeElement?.matches('input')")
    ActionChains(browser).send_keys("overcommit").perform()
    until(browser, "document.activeElement.shadowRoot?.textContent.includes('Glossary')")
    assert complaints(browser) == []


@pytest.mark.nightly
def test_the_reference_is_there_and_sends_nothing_to_the_site(base: str, browser: Chrome) -> None:
    requests_of(browser)
    browser.get(f"{base}/reference/index.html")
    title = "document.querySelector('h1') && document.querySelector('h1').textContent"
    assert "Menagerie control plane" in until(browser, title)
    until(browser, "document.body.innerText.includes('http://127.0.0.1:8080')")
    asked = {urlsplit(one["url"]).netloc for one in requests_of(browser)}
    assert asked == {urlsplit(base).netloc}
    assert complaints(browser) == []


@pytest.mark.nightly
@pytest.mark.parametrize("link", ["nowhere.md", "glossary.md#no-such-heading"])
def test_a_link_that_leads_nowhere_is_a_fault(base: str, tmp_path: Path, link: str) -> None:
    assert base
    for name in ("docs", "openapi", *pages.AT_THE_ROOT):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    with (tmp_path / "docs" / "work.md").open("a") as page:
        page.write(f"\n[There]({link}).\n")
    faults = site.build(tmp_path, tmp_path / "site")
    assert "does not exist" in faults
    assert link in faults
    assert not (tmp_path / "site").exists()
