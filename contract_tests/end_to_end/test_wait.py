"""`menagerie wait`: blocks until the service is ready, and says what is missing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import Installation
from menagerie import waiting
from menagerie.endpoints import endpoints_file
from menagerie.settings import load


def waits(home: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "menagerie", "wait", "--home", str(home), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with waits(tmp_path / "none", "--timeout", "0", "--url", "http://127.0.0.1:1") as process:
        out, told = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert "nothing answers at http://127.0.0.1:1" in told
    assert "start it with `menagerie serve`" in told
    assert "Traceback" not in told
    assert not (tmp_path / "none").exists()


def test_an_address_without_its_scheme_is_refused_at_once(tmp_path: Path) -> None:
    with waits(tmp_path / "none", "--url", "localhost:8080") as process:
        out, told = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "--url" in told
    assert "must begin with http:// or https://" in told


def test_what_is_no_menagerie_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(text: str, **headers: str) -> httpx.Response:
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(text.encode()))

    for answer in (told("hello"), told("[]"), told("{}", **{"Content-Encoding": "gzip"})):
        monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lambda *_, answer=answer: answer)
        assert "is not a Menagerie" in waiting.look(load(), "http://127.0.0.1:1").missing


def test_what_answers_drives_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = {"status": "down", "detail": "\x1b]0;owned\x07\u202e"}
    said = json.dumps({"status": "down", "checks": {"cells": check}}).encode()

    def answer(*_: object) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(said))

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", answer)
    assert waiting.wait(load(), "http://127.0.0.1:1", 0.0) == 1
    told = capsys.readouterr().err
    assert "owned" in told
    assert not {"\x1b", "\x07", "\u202e"} & {*told}


@pytest.mark.nightly
def test_a_gateway_that_is_away_is_missing(fresh: Callable[..., Installation]) -> None:
    installation = fresh()
    installation.start()
    settings = load(home=installation.home)
    assert waiting.look(settings).missing == ""
    assert waiting.is_served(settings)
    gateway = installation.part("gateway")
    workers = gateway.children()
    for process in (gateway, *workers):
        process.suspend()
    try:
        for process in (*workers, gateway):
            process.kill()
        until(lambda: "gateway" in waiting.look(settings).missing, "it is missed")
    finally:
        until(lambda: waiting.look(settings).missing == "", "it is back")
    installation.stop()
    assert not waiting.is_served(settings)


def test_a_port_that_the_system_chose_is_looked_up(tmp_path: Path) -> None:
    endpoints_file(tmp_path).write_text('{"base_url": "http://127.0.0.1:4711"}')
    assert waiting.address(load(home=tmp_path, port=0)) == "http://127.0.0.1:4711"
    assert waiting.address(load(home=tmp_path, port=8181)) == "http://127.0.0.1:8181"
