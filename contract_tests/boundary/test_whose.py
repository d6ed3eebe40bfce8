"""Whose share of threads and memory a request takes: an address's, until its token is let in."""

from types import SimpleNamespace
from typing import Any, cast

from contract_tests.boundary.small_api import MakeSmallApi, SmallApi
from control.boundary import identity
from specserver import Exchange
from specserver.requests import Headers
from specserver.shares import Stranger

ADDRESS = "203.0.113.7"
STRANGER = Stranger("203.0.113.0/24", ADDRESS)


def whose(
    api: SmallApi, token: str | None, *, path: str = "", peer: str = ADDRESS, **fields: str
) -> Any:
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    if token is not None:
        named["authorization"] = f"Bearer {token}"
    headers = Headers([(name.encode(), value.encode()) for name, value in named.items()])
    request = SimpleNamespace(headers=headers, client=peer)
    return api.boundary.whose(
        cast("Exchange", SimpleNamespace(request=request, path={"org_id": path}))
    )


def test_made_up_tokens_and_no_token_are_of_one_address(api: SmallApi) -> None:
    tokens = [None, "junk", "", *(identity.new_api_key().secret for _ in range(5))]
    for token in tokens:
        if token:
            assert api.get("/v1/me", token).status_code == 401
        assert whose(api, token) == STRANGER


def test_strangers_of_one_network_are_within_it(api: SmallApi) -> None:
    wide = ("2001:db8::/32", "2001:db8:7::/48")
    levels = (*wide, "2001:db8:7:100::/56", "2001:db8:7:1a3::/64")
    assert whose(api, "junk", peer="2001:db8:7:1a3:1:2:3:4") == Stranger(*levels)
    assert whose(api, None, peer="::ffff:203.0.113.7") == Stranger("203.0.113.0/24", ADDRESS)
    assert whose(api, None, peer="local") == Stranger("local")


def test_behind_a_trusted_proxy_it_is_the_clients_address(make_api: MakeSmallApi) -> None:
    api = make_api(trusted_proxies=("127.0.0.0/8",))
    shown = whose(api, "junk", peer="127.0.0.1", x_forwarded_for="198.51.100.9")
    assert shown == Stranger("198.51.100.0/24", "198.51.100.9")


def test_a_key_is_of_its_organization_and_a_session_of_its_user(api: SmallApi) -> None:
    person = api.person()
    org_id = api.org((person, "owner"))
    key = api.key(org_id, person)
    assert whose(api, key) == STRANGER
    assert api.get("/v1/me", key).status_code == 200
    assert api.get("/v1/me", person.session).status_code == 200
    for path in ("", org_id, "org_01JD7QK3V8Y2M4N6P8R0S2T4V6"):
        assert whose(api, key, path=path, peer="198.51.100.1") == org_id
        assert whose(api, person.session, path=path) == person.id
    assert whose(api, f"  {key} ") == org_id


def test_what_is_no_longer_let_in_is_a_strangers_again(api: SmallApi) -> None:
    person = api.person()
    key = api.key(api.org((person, "owner")), person)
    assert api.get("/v1/me", key).status_code == 200
    api.change_key(key, revoked_at=api.now())
    assert api.get("/v1/me", key).status_code == 401
    assert whose(api, key) == STRANGER


def test_so_many_tokens_are_known_and_no_more(api: SmallApi, monkeypatch: Any) -> None:
    monkeypatch.setattr("control.boundary.pipeline._KNOWN_MAX", 3)
    person = api.person()
    tokens = [api.session(person.id) for _ in range(4)]
    for token in tokens:
        assert api.get("/v1/me", token).status_code == 200
    assert [whose(api, token) for token in tokens] == [STRANGER, *[person.id] * 3]


def test_no_number_of_tokens_makes_a_busy_one_unknown(api: SmallApi, monkeypatch: Any) -> None:
    monkeypatch.setattr("control.boundary.pipeline._KNOWN_MAX", 3)
    busy, other = api.person(), api.person()
    assert api.get("/v1/me", busy.session).status_code == 200
    for _ in range(6):
        assert api.get("/v1/me", api.session(other.id)).status_code == 200
        assert whose(api, busy.session) == busy.id
        assert api.get("/v1/me", busy.session).status_code == 200
