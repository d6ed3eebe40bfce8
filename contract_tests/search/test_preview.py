"""Owns the promises about the page that searches in a browser."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import meilisearch
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from contract_tests.end_to_end import chromium
from contract_tests.search.on_port import on_port

SHORT = "short"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("preview")


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    with on_port(home, SHORT) as found:
        yield found


def test_the_page_is_there_in_development_only(address: str, home: Path) -> None:
    for headers in ({}, BROWSER):
        page = httpx.get(address, headers=headers)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    (home / "keys.json").write_text(json.dumps(["a key of 16 bytes or more"]))
    try:
        assert httpx.get(address, headers=BROWSER).json() == {"status": "Meilisearch is running"}
    finally:
        (home / "keys.json").write_text(json.dumps([SHORT]))
    assert "<title>Search preview</title>" in httpx.get(address).text


@pytest.mark.nightly
def test_somebody_searches_in_a_browser(address: str, tmp_path: Path) -> None:
    chromium.skip_without()
    client = meilisearch.Client(address, SHORT)
    documents = [{"id": 1, "title": "<b>Emma</b>"}, {"id": 2, "title": "Persuasion"}]
    client.wait_for_task(client.index("books").add_documents(documents).task_uid)
    with chromium.chromium(tmp_path) as driver:
        driver.get(address)
        until = WebDriverWait(driver, chromium.DEADLINE_S).until
        driver.find_element(By.ID, "key").send_keys(SHORT + "\n")
        until(lambda _: "About 2 hits" in driver.find_element(By.ID, "told").text)
        driver.find_element(By.ID, "query").send_keys("emmma")
        until(lambda _: "About 1 hits" in driver.find_element(By.ID, "told").text)
        assert "<b>Emma</b>" in driver.find_element(By.ID, "hits").text
        assert not [each for each in chromium.complaints(driver) if "favicon" not in each]
