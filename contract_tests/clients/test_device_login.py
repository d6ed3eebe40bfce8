"""`menagerie login --sso`: a code in the terminal, a browser anywhere, and a session."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients.cli import device_login
from clients.profiles import resolve
from contract_tests.api.harness import Person
from contract_tests.clients import test_control_plane
from contract_tests.clients.conftest import Cli
from contract_tests.clients.servers import problem
from contract_tests.clients.stand_in import ControlPlane
from contract_tests.clients.test_control_plane import Served

served = test_control_plane.served
CODE = re.compile(r"enter this code: ([A-Z-]+)")
Decide = Callable[[float], None]


@pytest.fixture
def server(served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    assert folder.exists()
    monkeypatch.setenv("MENAGERIE_BASE_URL", served.base_url)
    return served


def decide(server: Served, person: Person, code: str, decision: str) -> None:
    """As the page does, over HTTP: the house's own requests are another thread's."""
    answer = httpx.post(
        f"{server.base_url}/v1/device-logins/actions/decide",
        headers={"Authorization": f"Bearer {person.session}"},
        json={"user_code": code, "decision": decision},
    )
    assert answer.status_code == 204, answer.text


def deciding(
    server: Served, capsys: pytest.CaptureFixture[str], person: Person, decision: str
) -> Decide:
    """In place of waiting: somebody decides after the second look."""
    shown, waits = [""], [0]

    def sleep(_seconds: float) -> None:
        shown[0] += capsys.readouterr().err
        waits[0] += 1
        if waits[0] == 2:
            (code,) = CODE.findall(shown[0])
            decide(server, person, code, decision)

    return sleep


def test_somebody_lets_the_terminal_in(
    server: Served,
    cli: Cli,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = server.house.person("Ada")
    monkeypatch.setattr(device_login, "sleep", deciding(server, capsys, person, "approved"))
    ran = cli("login", "--sso", "--save-as", "work")
    assert ran.code == 0, ran.err
    assert "session saved in profile work" in ran.err
    token = resolve("work").session_token
    assert token is not None
    me = server.house.get("/v1/me", token).json()
    assert me["user"]["id"] == person.id
    assert token not in ran.out + ran.err


def test_what_was_refused_is_told(
    server: Served,
    cli: Cli,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    person = server.house.person("Ada")
    monkeypatch.setattr(device_login, "sleep", deciding(server, capsys, person, "denied"))
    ran = cli("login", "--sso")
    assert (ran.code, "somebody refused" in ran.err) == (3, True)
    assert resolve().session_token is None


def test_nobody_in_time_ends_it(server: Served, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_login, "sleep", server.house.pass_time)
    monkeypatch.setattr(device_login, "_INTERVALS_S", (301, 301))
    ran = cli("login", "--sso")
    assert (ran.code, "nobody let this program in in time" in ran.err) == (5, True)


@pytest.mark.parametrize(
    "other", [["--email", "ada@example.com"], ["--totp"], ["--step-up"], ["--break-glass"]]
)
def test_it_is_one_way_alone(home: Path, plane: ControlPlane, cli: Cli, other: list[str]) -> None:
    ran = cli("login", "--sso", *other)
    assert (ran.code, "leave the other ways to sign in out" in ran.err) == (2, True)
    assert not plane.asked("POST", "/device-logins")
    assert home.exists()


@pytest.mark.parametrize(
    ("page", "code"),
    [
        ("javascript:alert(1)", "AAAA-AAAA"),
        ("https://example.com/\x1b[2J", "AAAA-AAAA"),
        ("https://example.com/", "\x1b[31m"),
        ("https://example.com/", ""),
    ],
)
def test_a_hostile_server_writes_nothing_of_its_own(
    home: Path, plane: ControlPlane, cli: Cli, page: str, code: str
) -> None:
    told: dict[str, Any] = {"device_code": "x" * 43, "user_code": code}
    told |= {"verification_url": page}
    told |= {"expires_in_s": 600, "interval_s": 5}
    plane.script("POST", "/v1/device-logins", (201, {}, told))
    ran = cli("login", "--sso")
    assert ran.code == 1
    assert "names no page and code" in ran.err
    assert "\x1b" not in ran.err
    assert home.exists()


def test_a_server_is_never_asked_without_a_pause(
    home: Path, plane: ControlPlane, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(device_login, "sleep", waited.append)
    told: dict[str, Any] = {"device_code": "x" * 43, "user_code": "BCDF-GHJK"}
    told |= {"expires_in_s": 600}
    told |= {"verification_url": f"{plane.base_url}/account/device", "interval_s": 0}
    plane.script("POST", "/v1/device-logins", (201, {}, told))
    pending = problem(409, "Conflict", "not yet", code="authorization_pending")
    refused = problem(403, "Forbidden", "refused", code="access_denied")
    plane.script("POST", "/v1/device-logins/actions/exchange", pending, refused)
    assert cli("login", "--sso").code == 3
    assert waited == [1, 1], "never without a pause, whatever the server says"
    assert home.exists()


@pytest.mark.nightly
@pytest.mark.parametrize("ends_by", ["approval", "interrupt"])
def test_a_terminal_of_its_own(served: Served, tmp_path: Path, ends_by: str) -> None:
    environ = {name: one for name, one in os.environ.items() if "MENAGERIE" not in name}
    environ |= {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environ |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    environ |= {"MENAGERIE_BASE_URL": served.base_url}
    program = Path(sys.executable).parent / "menagerie"
    with subprocess.Popen(
        [program, "login", "--sso"], env=environ, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        shown = ""
        while not (found := CODE.search(shown)):
            shown += process.stderr.readline()
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert arguments.split(b"\0")[-3:-1] == [b"login", b"--sso"]
        if ends_by == "approval":
            decide(served, served.house.person("Ada"), found[1], "approved")
        else:
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == (0 if ends_by == "approval" else 130), rest
    kept = tmp_path / "config" / "menagerie" / "config.toml"
    assert kept.exists() == (ends_by == "approval")
