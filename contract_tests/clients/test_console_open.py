"""`menagerie console open`: a browser where there is one, else the URL, and never both."""

import json
import webbrowser
from pathlib import Path

import pytest

from clients.cli import console
from contract_tests.clients.conftest import Cli
from contract_tests.clients.stand_in import ControlPlane

START = "https://cell.local.localhost:"


@pytest.fixture
def opened(home: Path, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> list[str]:
    """What was opened, on a machine with a terminal and a browser in it."""
    assert home.is_dir()
    plane.world.add("sales")
    urls: list[str] = []

    def take(url: str) -> bool:
        urls.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", take)
    monkeypatch.setattr(console, "is_seen", lambda: True)
    monkeypatch.setenv("DISPLAY", ":0")
    return urls


def test_it_opens_the_browser_and_keeps_the_url_to_itself(opened: list[str], cli: Cli) -> None:
    ran = cli("console", "open", "sales")
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert len(opened) == 1
    assert opened[0].startswith(START)
    assert "://" not in ran.err


def test_it_prints_the_url_where_nothing_is_opened(
    opened: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = cli("console", "open", "sales", "--no-browser")
    document = json.loads(cli("console", "open", "sales", "-o", "json").out)
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("BROWSER", raising=False)
    headless = cli("console", "open", "sales")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(console, "is_seen", lambda: False)
    piped = cli("console", "open", "sales")
    for url in (asked.out, document["url"], headless.out, piped.out):
        assert url.startswith(START)
        assert "/v1/console/" in url
    assert "works once" in piped.err
    assert opened == []


def test_only_a_page_is_opened(
    opened: list[str], cli: Cli, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plane.cell, "url", lambda *_: "file:///etc/passwd")
    assert "file:///etc/passwd" in cli("console", "open", "sales").out
    assert opened == []
