"""How often strangers and providers may ask: discovery, logins of programs, sign-ins and SCIM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract_tests.api.harness import House
from contract_tests.api.rows import is_problem
from contract_tests.api.sso import with_saml as saml
from contract_tests.api.sso.provider import ERROR, USER, Provider
from contract_tests.pages import houses
from control.boundary.rates import Limiter
from control.boundary.windows import LibraryMeter, LocalWindows
from control.settings import RateLimits

RATES = RateLimits(
    authentication_per_minute=3,
    discovery_per_minute=4,
    device_per_minute=5,
    unauthenticated_per_minute=3,
    refused_per_minute=4,
    scim_per_minute=12,
    scim_burst=5,
    network_times=2,
)
NEIGHBOR, ELSEWHERE = "203.0.113.8", "198.51.100.7"
NEVER = {"device_code": "x" * 43}
Asked = tuple[str, str, dict[str, Any]]
OF_STRANGERS: dict[str, tuple[int, Asked]] = {
    "discovery": (4, ("GET", "/v1/sso/discover?email=ada@example.com", {})),
    "device": (5, ("POST", "/v1/device-logins", {})),
    "device, asked again": (5, ("POST", "/v1/device-logins/actions/exchange", {"json": NEVER})),
    "a code guessed": (
        3,
        ("POST", "/v1/sso/sessions", {"json": {"code": "c", "state": "s", "browser_token": "b"}}),
    ),
    "a response guessed": (3, ("POST", saml.SESSIONS, {})),
}


@pytest.fixture
def limited(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[House, list[float]]]:
    """The house, and the one moment that its windows know until a test moves it."""
    now = [1_000_000.25]
    meter = LibraryMeter(LocalWindows(clock=lambda: now[0]), clock=lambda: now[0])
    monkeypatch.setattr(houses, "make_limiter", lambda *_given: Limiter(meter, RATES))
    with houses.another(house, tmp_path, rates=RATES) as made:
        yield made, now


def ask(house: House, asked: Asked, address: str) -> Any:
    method, path, options = asked
    return house.request(method, path, None, address=address, **options)


@pytest.mark.parametrize("what", OF_STRANGERS)
def test_a_stranger_asks_so_often_and_a_crowd_no_more_than_a_few(
    limited: tuple[House, list[float]], what: str
) -> None:
    house, now = limited
    amount, asked = OF_STRANGERS[what]
    if what == "a response guessed":
        connection = saml.connect(house, house.tenant())
        body = {"connection_id": connection, "saml_response": "PGEvPg=="}
        asked = (*asked[:2], {"json": body})
    answers = [ask(house, asked, "203.0.113.7") for _ in range(amount + 1)]
    assert 429 not in [one.status_code for one in answers[:-1]]
    is_problem(answers[-1], 429, "rate_limited")
    wait_s = int(answers[-1].headers["Retry-After"])
    # Another address of the network has what is left of the network's, and others all of theirs.
    assert ask(house, asked, NEIGHBOR).status_code != 429
    for number in range(amount * RATES.network_times):
        answer = ask(house, asked, f"203.0.113.{100 + number}")
    is_problem(answer, 429, "rate_limited")
    assert ask(house, asked, ELSEWHERE).status_code != 429
    now[0] += wait_s
    assert ask(house, asked, "203.0.113.7").status_code != 429


def test_a_provider_pushes_so_often_whatever_its_tokens_and_addresses(
    limited: tuple[House, list[float]],
) -> None:
    house, now = limited
    provider, other = Provider(house), Provider(house)
    second, _ = provider.new_token()
    tokens = [provider.token, second]

    def push(number: int) -> Any:
        body = {"schemas": [USER], "userName": provider.address(f"u{now[0]}{number}")}
        token, address = tokens[number % 2], f"198.51.100.{number}"
        return provider.ask("POST", "/Users", body, token=token, address=address)

    answers = [push(number) for number in range(6)]
    assert [one.status_code for one in answers] == [201] * 5 + [429]
    refused = answers[-1]
    assert refused.json()["schemas"] == [ERROR]
    assert refused.headers["Content-Type"] == "application/scim+json"
    assert int(refused.headers["Retry-After"]) <= 6
    assert other.ask("GET", "/Users").status_code == 200, "it is another organization's"
    # Waiting as told always works; a minute has no more than a minute's.
    now[0] += int(refused.headers["Retry-After"])
    assert [push(number).status_code for number in range(10, 15)] == [201] * 5
    now[0] += 6
    assert [push(number).status_code for number in range(20, 23)] == [201] * 2 + [429]
    # People of the organization work on meanwhile.
    assert house.get(provider.tenant.path, provider.tenant.key).status_code == 200


def test_whoever_guesses_tokens_of_providers_is_slowed(
    limited: tuple[House, list[float]],
) -> None:
    house, _ = limited
    provider = Provider(house)

    def guess(number: int) -> Any:
        token = "mscim_" + f"{number:049}"
        return provider.ask("GET", "/Users", token=token, address="203.0.113.7")

    statuses = [guess(number).status_code for number in range(6)]
    assert statuses == [401] * 4 + [429] * 2
    # Whoever has one comes from the same address: their provider is a cloud, which others use.
    right = provider.ask("GET", "/Users", address="203.0.113.7")
    assert right.status_code == 200
