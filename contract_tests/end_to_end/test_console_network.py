"""A console held to its instance's allow-list, from two addresses through the real gateway."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyotp
import pytest

from clients.transport import trust
from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import Installation, lasted_s, order

COOKIE = "__Secure-console"
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
FORGED = {"X-Forwarded-For": HERE, "Forwarded": f"for={HERE}", "X-Real-IP": HERE}
APPLIES_S = 2.0
TURNS = ((ELSEWHERE, HERE), (HERE, ELSEWHERE), (ELSEWHERE, HERE))


class Visitor:
    """A browser that can go from one address to another and take its cookie along."""

    def __init__(self, installation: Installation, instance_id: str, stack: ExitStack) -> None:
        self.installation = installation
        self.path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{instance_id}"
        self.page = f"/console/{instance_id}/"
        self.headers: dict[str, str] = {}
        context = trust(installation.endpoints["ca_file"])
        self.clients = {
            address: stack.enter_context(
                httpx.Client(transport=httpx.HTTPTransport(verify=context, local_address=address))
            )
            for address in (HERE, ELSEWHERE)
        }
        self.cell = urlsplit(self.url())

    def url(self) -> str:
        with self.installation.api() as api:
            made = api.post(f"{self.path}/console-sessions")
            assert made.status_code == 201, made.text
            return str(made.json()["url"])

    def allow(self, *cidrs: str) -> None:
        with self.installation.api(session=True) as api:
            answer = api.put(
                f"{self.path}/network",
                json={"allow_cidrs": list(cidrs)},
                headers={"If-Match": "*"},
            )
            assert answer.is_success, answer.text

    def ask(self, method: str, path: str, address: str, **options: Any) -> httpx.Response:
        headers = {**self.headers, **options.pop("headers", {}), "Host": self.cell.netloc}
        return self.clients[address].request(
            method,
            f"https://127.0.0.1:{self.cell.port}{path}",
            headers=headers,
            extensions={"sni_hostname": self.cell.hostname},
            timeout=60,
            **options,
        )

    def enter(self, address: str) -> None:
        """Begins a session with the list wide open, whatever an earlier test left it at."""
        self.allow("127.0.0.0/8")
        path = urlsplit(self.url()).path

        def redirected() -> httpx.Response | None:
            # One that is refused uses nothing up.
            answer = self.ask("GET", path, address)
            return answer if answer.status_code == 303 else None

        opened = until(redirected, f"the console opens from {address}")
        secret = re.findall(rf"{COOKIE}=([^;]+)", opened.headers["set-cookie"])[0]
        for client in self.clients.values():
            client.cookies.clear()
        self.headers = {"Cookie": f"{COOKIE}={secret}"}
        page = self.ask("GET", self.page, address)
        assert page.status_code == 200, page.text
        self.headers["X-Console-Proof"] = re.findall(r'data-proof="([0-9a-f]+)"', page.text)[0]
        for each in (HERE, ELSEWHERE):
            self.gets(200, each)

    def post(self, verb: str, address: str, **headers: str) -> httpx.Response:
        body = {"sql": "SELECT 42"}
        return self.ask("POST", self.page + verb, address, json=body, headers=headers)

    def gets(self, status: int, address: str) -> float:
        """Asks until the status is this one; answers for how long it was not."""

        def does() -> bool:
            return self.post("run", address).status_code == status

        return lasted_s(does, f"{status} from {address}")

    def turns_s(self, allowed: str, shut_out: str) -> float:
        """How long after the answer a list that is turned around does not apply."""
        self.allow(f"{allowed}/32")
        return self.gets(403, shut_out) + self.gets(200, allowed)


@pytest.fixture(scope="module")
def visitor(installation: Installation) -> Iterator[Visitor]:
    with installation.api(session=True) as api:
        secret = api.post("/v1/me/totp", json={}).json()["secret"]
        code = pyotp.TOTP(secret).now()
        assert api.post("/v1/me/totp/actions/confirm", json={"code": code}).is_success
    with ExitStack() as stack:
        yield Visitor(installation, order(installation)["id"], stack)
    with installation.api(session=True) as api:
        assert api.delete("/v1/me/totp").is_success


@pytest.mark.nightly
def test_a_session_does_not_work_from_off_the_list(visitor: Visitor) -> None:
    visitor.enter(HERE)
    for address in (HERE, ELSEWHERE):
        assert visitor.post("run", address).json()["rows"] == [["42"]]
    visitor.allow(f"{HERE}/32")
    visitor.gets(403, ELSEWHERE)
    for verb in ("run", "stop", "end"):
        for headers in ({}, FORGED):
            assert visitor.post(verb, ELSEWHERE, **headers).status_code == 403
    refused = visitor.post("run", ELSEWHERE).json()["error"]
    assert f"your address, {ELSEWHERE}, is not on the instance's allow-list" in refused
    page = visitor.ask("GET", visitor.page, ELSEWHERE)
    assert page.status_code == 403
    assert f"your address, {ELSEWHERE}," in page.text
    assert visitor.post("run", HERE).json()["rows"] == [["42"]]


@pytest.mark.nightly
def test_a_one_time_url_waits_for_an_address_on_the_list(visitor: Visitor) -> None:
    visitor.enter(HERE)
    visitor.allow(f"{HERE}/32")
    visitor.gets(403, ELSEWHERE)
    path = urlsplit(visitor.url()).path
    for headers in ({}, FORGED):
        refused = visitor.ask("GET", path, ELSEWHERE, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "address_not_allowed")
    assert visitor.ask("GET", path, HERE).status_code == 303


@pytest.mark.nightly
def test_a_list_that_turns_around_applies_within_two_seconds(visitor: Visitor) -> None:
    visitor.enter(HERE)
    # A machine that stalls spoils one of the times; a list that applies late spoils them all.
    times = sorted(visitor.turns_s(*turn) for turn in TURNS)
    assert times[1] < APPLIES_S, times
    assert visitor.post("end", HERE).status_code == 403
    assert visitor.post("end", ELSEWHERE).status_code == 200
