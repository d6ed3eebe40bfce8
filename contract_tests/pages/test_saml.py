"""The ACS page: a form of the provider's site signs in the browser that began, and no other."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from contract_tests.api.harness import House, Tenant
from contract_tests.api.letters import new_email
from contract_tests.api.sso import with_saml as saml
from contract_tests.pages.browsing import FORM, Browser, Page

COOKIE = "menagerie-sso-by-form"
CROSS_SITE = {"Content-Type": FORM, "Sec-Fetch-Site": "cross-site", "Origin": "https://idp.example"}


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant("SAML", plan="team")


@pytest.fixture
def connection(house: House, tenant: Tenant) -> str:
    return saml.connect(house, tenant)


def begin(browser: Browser, connection: str, after: str = "") -> saml.Begun:
    path = f"/account/sso/{connection}{f'?next={after}' if after else ''}"
    sent = browser.ask_as_is("GET", path, {}, {})
    assert sent.status == 303, sent.response.text
    place = urlsplit(sent.response.headers["location"])
    assert place.netloc == "idp.example.com"
    query = {name: values[0] for name, values in parse_qs(place.query).items()}
    request = saml.asked(query["SAMLRequest"])
    return saml.Begun(connection, request.get("ID", ""), query["RelayState"], "")


def answer(house: House, begun: saml.Begun, email: str, **said: Any) -> dict[str, str]:
    response = saml.answered(house, begun, email, **said)
    return {"SAMLResponse": response, "RelayState": begun.state}


def post(browser: Browser, connection: str, form: dict[str, str]) -> Page:
    return browser.ask_as_is("POST", f"/account/sso/{connection}/acs", form, CROSS_SITE)


def test_somebody_comes_in_by_it(house: House, browser: Browser, connection: str) -> None:
    begun, email = begin(browser, connection), new_email("ada")
    assert COOKIE in browser.cookies
    done = post(browser, connection, answer(house, begun, email))
    assert (done.status, done.response.headers["location"]) == (303, "/account/")
    assert COOKIE not in browser.cookies
    assert email in browser.get("/account/").response.text


def test_one_goes_on_to_where_one_wanted(house: House, browser: Browser, connection: str) -> None:
    begun = begin(browser, connection, "device")
    done = post(browser, connection, answer(house, begun, new_email()))
    assert done.response.headers["location"] == "/account/device"


@pytest.mark.parametrize("relay_state", ["https://evil.example/", "//evil.example", "javascript:1"])
def test_the_relay_state_is_no_url(
    house: House, browser: Browser, tenant: Tenant, relay_state: str
) -> None:
    connection = saml.connect(house, tenant, allows_idp_initiated=True)
    begun = saml.Begun(connection, "", relay_state, "")
    done = post(browser, connection, answer(house, begun, new_email(), in_response_to=""))
    assert (done.status, done.response.headers["location"]) == (303, "/account/")


def test_another_browser_is_not_signed_in(house: House, browser: Browser, connection: str) -> None:
    """As by a page that sends a response of its owner's from the browser of whoever looks at it."""
    form = answer(house, begin(browser, connection), new_email())
    other = Browser(house)
    refused = post(other, connection, form)
    assert refused.status == 401
    assert "Begin again" in refused.texts["alert"]
    begin(other, connection)
    assert post(other, connection, form).status == 401
    assert "menagerie-session" not in other.cookies
    assert post(browser, connection, form).status == 303


@pytest.mark.parametrize(
    ("form", "status", "said"),
    [
        ({}, 422, "document_refused"),
        ({"SAMLResponse": "PGEvPg=="}, 401, "Begin here"),
        ({"SAMLResponse": "<script>", "RelayState": "<script>"}, 401, "Begin again"),
    ],
)
def test_what_is_no_answer_is_told_so(
    browser: Browser, connection: str, form: dict[str, str], status: int, said: str
) -> None:
    refused = post(browser, connection, form)
    assert (refused.status, said in refused.texts["alert"]) == (status, True)
    assert "<script>" not in refused.response.text


def test_a_reason_is_told_to_whoever_can_mend_it(
    house: House, browser: Browser, connection: str
) -> None:
    begun = begin(browser, connection)
    form = answer(house, begun, new_email(), audience="https://other.example")
    assert "audience_wrong" in post(browser, connection, form).texts["alert"]


def test_a_large_response_is_taken_here_and_nowhere_else(
    house: House, browser: Browser, connection: str
) -> None:
    begun, many = begin(browser, connection), [f"group-{n:04}-{'x' * 200}" for n in range(450)]
    form = answer(house, begun, new_email(), groups=many)
    assert len(form["SAMLResponse"]) > 150_000
    assert post(browser, connection, form).status == 303
    assert browser.ask_as_is("POST", "/account/sso", form, CROSS_SITE).status == 413
    huge = {**form, "SAMLResponse": "A" * 500_000}
    assert post(browser, connection, huge).status == 413


def test_no_other_form_comes_from_elsewhere(browser: Browser, connection: str) -> None:
    for path in ("/account/sso", f"/account/sso/{connection}", "/account/sign-in"):
        assert browser.ask_as_is("POST", path, {"x": "y"}, CROSS_SITE).status in {403, 405}
    assert browser.ask_as_is("GET", f"/account/sso/{connection}/acs", {}, {}).status == 405
