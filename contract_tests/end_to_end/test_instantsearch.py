"""Owns the promise that InstantSearch works in a browser, by a key that a page may show."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from clients.client import transport_for_localhost
from contract_tests.clients.node_packages import node_modules
from contract_tests.end_to_end import chromium
from contract_tests.end_to_end.engine_clients import WAIT_S, Place
from contract_tests.end_to_end.installation import Installation, order
from contract_tests.end_to_end.test_engines import place_of
from contract_tests.service_process import until

PAGE = Path(__file__).with_name("shop")
BOOKS = [
    ("Pride and Prejudice", "Romance", 1813),
    ("Emma", "Romance", 1815),
    ("Persuasion", "Romance", 1817),
    ("Moby Dick", "Adventure", 1851),
    ("Treasure Island", "Adventure", 1883),
]
SETTINGS = {
    "filterableAttributes": ["genre", "year", "shelf.lvl0", "shelf.lvl1"],
    "sortableAttributes": ["year"],
}


def documents() -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "title": title,
            "genre": genre,
            "year": year,
            "shelf": {"lvl0": "Novels", "lvl1": f"Novels > {genre}"},
        }
        for number, (title, genre, year) in enumerate(BOOKS)
    ]


class _Files(http.server.SimpleHTTPRequestHandler):
    """The page, and the packages as they were installed."""

    def __init__(self, *given: Any, modules: Path) -> None:
        self._modules = modules
        super().__init__(*given, directory=str(PAGE))

    def translate_path(self, path: str) -> str:
        if path.startswith("/modules/"):
            return str(self._modules / path.removeprefix("/modules/"))
        return super().translate_path(path)

    def log_message(self, *given: Any) -> None: ...


_Files.extensions_map = {
    **_Files.extensions_map,
    ".mjs": "text/javascript",
    ".js": "text/javascript",
}


@contextmanager
def served(modules: Path) -> Iterator[str]:
    """The page, at an origin that is not the engine's."""
    handler = partial(_Files, modules=modules)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def filled(place: Place) -> str:
    """The key of the page, which may search this index and do nothing else."""
    transport = transport_for_localhost(place.ca_file)
    base = f"https://{place.host}:{place.port}"
    headers = {"Authorization": f"Bearer {place.login[1]}"}
    with httpx.Client(
        transport=transport, base_url=base, headers=headers, timeout=WAIT_S
    ) as engine:
        engine.patch("/indexes/shop/settings", json=SETTINGS)
        task = engine.post("/indexes/shop/documents", json=documents()).json()["taskUid"]
        until(lambda: engine.get(f"/tasks/{task}").json()["status"] == "succeeded", "it is filled")
        wanted = {"actions": ["search"], "indexes": ["shop"], "expiresAt": None}
        return str(engine.post("/keys", json=wanted).json()["key"])


class Shopper:
    """Somebody at the page; what they see comes a moment after what they do."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def sees(self, *titles: str) -> None:
        self._until("#hits li", list(titles))

    def sees_in(self, place: str, *texts: str) -> None:
        self._until(place, list(texts))

    def click(self, place: str, text: str) -> None:
        for each in self.driver.find_elements(By.CSS_SELECTOR, place):
            if text in each.text:
                each.click()
                return
        raise AssertionError(f"{text} is not in {place}")

    def type(self, place: str, text: str) -> None:
        field = self.driver.find_element(By.CSS_SELECTOR, place)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)

    def _until(self, place: str, texts: list[str]) -> None:
        # The page may be drawn anew between two looks; a script looks once.
        script = "return Array.from(document.querySelectorAll(arguments[0]), one => one.innerText)"
        shown: list[str] = []

        def is_so(driver: Chrome) -> bool:
            shown[:] = [" ".join(one.split()) for one in driver.execute_script(script, place)]
            return shown == texts

        with contextlib.suppress(TimeoutException):
            WebDriverWait(self.driver, chromium.DEADLINE_S).until(is_so)
        assert shown == texts, chromium.complaints(self.driver)


@pytest.mark.nightly
def test_a_shop_is_searched_in_a_browser(installation: Installation, tmp_path: Path) -> None:
    chromium.skip_without()
    modules = node_modules()
    place = place_of(installation, order(installation, engine="meilisearch", size="f0")["id"])
    given = {"host": f"https://{place.host}:{place.port}", "key": filled(place)}
    with served(modules) as page, chromium.chromium(tmp_path, place.host, place.port) as driver:
        driver.get(f"{page}/#{urlencode(given)}")
        shopper = Shopper(driver)
        shopper.sees("Pride and Prejudice", "Emma", "Persuasion")
        shopper.sees_in("#genres li", "Romance3", "Adventure2")
        shopper.click("#pages a", "2")
        shopper.sees("Moby Dick", "Treasure Island")

        shopper.type("#search input", "prejudi")
        shopper.sees("Pride and Prejudice")
        shopper.sees_in("#hits mark", "Prejudi")
        shopper.sees_in("#genres li", "Romance1")
        shopper.type("#search input", "tresure")
        shopper.sees("Treasure Island")
        driver.find_element(By.CSS_SELECTOR, "#search button[type=reset]").click()

        shopper.sees_in("#genres li", "Romance3", "Adventure2")
        shopper.click("#genres label", "Adventure")
        shopper.sees("Moby Dick", "Treasure Island")
        # What is chosen of a list is added to by "or", so the others are still counted.
        shopper.sees_in("#genres li", "Adventure2", "Romance3")
        Select(driver.find_element(By.CSS_SELECTOR, "#sort select")).select_by_visible_text(
            "Newest"
        )
        shopper.sees("Treasure Island", "Moby Dick")
        shopper.click("#genres label", "Adventure")
        shopper.sees("Treasure Island", "Moby Dick", "Persuasion")

        shopper.sees_in("#shelves li", "Novels5")
        shopper.click("#shelves a", "Novels")
        shopper.click("#shelves li li a", "Romance")
        shopper.sees("Persuasion", "Emma", "Pride and Prejudice")
        shopper.type("#years input[class*=min]", "1815")
        shopper.click("#years button", "Go")
        shopper.sees("Persuasion", "Emma")
        assert not chromium.complaints(driver)
