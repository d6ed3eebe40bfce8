"""A provider that is not ours (oidc-provider-mock, on authlib): the whole way through the API."""

import re
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from contract_tests.api.harness import House
from contract_tests.api.sso.with_oidc import SESSIONS, SIGN_INS, Begun, new_domain, returned


@pytest.fixture(scope="module")
def independent() -> Iterator[str]:
    with warnings.catch_warnings():
        # It uses what authlib is about to drop.
        warnings.simplefilter("ignore")
        import oidc_provider_mock  # noqa: PLC0415

        with oidc_provider_mock.run_server_in_thread() as server:
            yield f"http://localhost:{server.server_port}"


def test_somebody_signs_in_by_a_provider_that_is_not_ours(house: House, independent: str) -> None:
    tenant, email = house.tenant(), f"ada@{new_domain()}"
    issuer = independent.replace("localhost", "127.0.0.1")
    known = httpx.get(f"{issuer}/.well-known/openid-configuration").json()
    oidc = {"issuer": known["issuer"], "client_id": "any", "client_secret": "any"}
    body = {"name": "Independent", "oidc": oidc}
    made = house.post(f"{tenant.path}/sso/connections", tenant.owner.session, json=body)
    assert made.status_code == 201, made.text

    told = house.post(SIGN_INS, json={"connection_id": made.json()["id"]}).json()
    url = told["redirect_url"]
    begun = Begun(told["browser_token"], dict(parse_qsl(urlsplit(url).query)))
    assert re.match(re.escape(known["authorization_endpoint"]), url)
    userinfo: dict[str, Any] = {"email": email, "email_verified": True, "name": "Ada"}
    httpx.put(f"{issuer}/users/ada", json=userinfo).raise_for_status()
    answer = httpx.post(url, data={"sub": "ada"}, follow_redirects=False)
    assert answer.status_code == 302, answer.text
    back = dict(parse_qsl(urlsplit(answer.headers["Location"]).query))
    assert answer.headers["Location"].startswith("http://127.0.0.1:8080/account/sso/callback?")
    assert back["state"] == begun.query["state"]

    opened = house.post(SESSIONS, json=returned(begun, back["code"], iss=back.get("iss")))
    assert opened.status_code == 201, opened.text
    me = house.get("/v1/me", opened.json()["token"]).json()
    assert (me["user"]["email"], me["user"]["name"]) == (email, "Ada")
    again = house.post(SESSIONS, json=returned(begun, back["code"]))
    assert again.status_code == 401
