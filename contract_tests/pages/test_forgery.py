"""Forms, cookies and addresses that somebody else has made."""

from pathlib import Path

import pytest

from contract_tests.api.harness import PASSWORD, House
from contract_tests.pages.browsing import FORM, Browser
from contract_tests.pages.houses import another
from contract_tests.pages.test_walks import INVITE, SIGN_IN, START, invited, signed_in
from control.settings import RateLimits

OUT_OF_DATE = "This form is out of date"
EVERY_PAGE = (
    *(SIGN_IN, f"{INVITE}?token=mi_{'a' * 49}", f"{START}nowhere", START),
    *(f"{START}reset", f"{START}reset?token=mp_{'a' * 49}", f"{START}reset?token=x"),
    *(f"{START}email", f"{START}email?token=mv_{'a' * 49}", f"{START}password"),
)


def test_every_page_is_kept_nowhere_shown_in_no_frame_and_runs_no_script(
    house: House, browser: Browser
) -> None:
    for path in EVERY_PAGE:
        for who in ("nobody", "somebody"):
            if who == "somebody" and "menagerie-session" not in browser.cookies:
                signed_in(browser, house.person())
            page = browser.get(path)
            headers = page.response.headers
            assert headers["cache-control"] == "no-store", path
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["x-frame-options"] == "DENY"
            policy = headers["content-security-policy"]
            assert "frame-ancestors 'none'" in policy
            assert "form-action 'self'" in policy
            assert "script" not in policy
            assert "unsafe" not in policy
            assert "<script" not in page.response.text
            assert " style=" not in page.response.text
            assert "x-request-id" in headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
    ],
)
def test_no_form_is_taken_from_another_site(
    house: House, browser: Browser, headers: dict[str, str]
) -> None:
    person = house.person()
    form = browser.get(SIGN_IN).form("Sign in")
    typed = {**form.values, "email": person.email, "password": PASSWORD}
    page = browser.post(form.action, typed, **headers)
    assert (page.status, page.title) == (403, OUT_OF_DATE)
    assert "menagerie-session" not in browser.cookies
    assert browser.post(form.action, typed).path == START


def test_an_old_browser_is_believed_by_its_origin(house: House, browser: Browser) -> None:
    typed = {"email": house.person().email, "password": PASSWORD}
    for origin, status in (
        ("http://evil.example", 403),
        ("http://localhost:8080.evil.example", 403),
        ("http://localhost:9999", 403),
        ("nonsense", 403),
        ("null", 303),
        ("http://localhost:8080", 303),
    ):
        form = browser.get(SIGN_IN).form("Sign in")
        headers = {"Content-Type": FORM, "Origin": origin}
        page = browser.ask_as_is("POST", form.action, {**form.values, **typed}, headers)
        assert page.status == status, origin
        browser.cookies.pop("menagerie-session", None)


def test_a_form_works_in_the_browser_alone_that_it_was_given_to(
    house: House, browser: Browser
) -> None:
    """Else somebody could sign others in to an account of theirs, and read what they do."""
    typed = {"email": house.person().email, "password": PASSWORD}
    theirs = Browser(house).get(SIGN_IN).form("Sign in")
    for cookies in ({}, {"menagerie-form": "x"}, {"menagerie-form": ""}):
        browser.cookies = dict(cookies)
        assert browser.post(SIGN_IN, {**theirs.values, **typed}).status == 403
        assert browser.post(SIGN_IN, typed).status == 403
    browser.get(SIGN_IN)
    for proof in (theirs.values["proof"], "", "0" * 64, "\ud83e", "é"):
        sent = {**theirs.values, **typed, "proof": proof.encode(errors="replace").decode()}
        assert browser.post(SIGN_IN, sent).status == 403, proof


def test_a_form_of_before_the_sign_in_works_no_more_after_it(
    house: House, browser: Browser
) -> None:
    person = house.person()
    before = browser.get(SIGN_IN).form("Sign in")
    page = signed_in(browser, person)
    assert browser.post("/account/sign-out", before.values).status == 403
    for form in page.forms:
        assert (
            browser.post(form.action, {**form.values, "proof": before.values["proof"]}).status
            == 403
        )
    assert browser.get(START).title == "Your account"
    assert len(house.get("/v1/sessions", person.session).json()["items"]) == 2


def test_what_changes_something_is_asked_for_by_no_link(house: House, browser: Browser) -> None:
    signed_in(browser, house.person())
    for path in (
        *("sign-out", "invite/create-account", "invite/accept", "second-factor/enrol"),
        *("second-factor/confirm", "second-factor/remove", "sessions/end"),
        *("reset/ask", "reset/complete", "email/change", "email/confirm"),
        *("second-factor/recovery-codes", "passkeys/add", "passkeys/create"),
        *("passkeys/rename", "passkeys/remove"),
    ):
        page = browser.get(START + path)
        allowed = set(page.response.headers["allow"].split(", "))
        assert (page.status, allowed) == (405, {"POST", "OPTIONS"})
    assert browser.get(START).title == "Your account"


@pytest.mark.parametrize(
    "after",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "../v1/me",
        "javascript:x",
        "code",
    ],
)
def test_nobody_is_led_elsewhere_after_signing_in(
    house: House, browser: Browser, after: str
) -> None:
    page = browser.get(f"{SIGN_IN}?next={after}&invite={after}")
    page = browser.send(page, "Sign in", email=house.person().email, password=PASSWORD)
    assert page.path == START
    assert "evil" not in page.response.text


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "/account//evil.example", "/account/%2f%2fevil.example/", "/account/\\evil"],
)
def test_no_way_of_writing_a_path_leads_to_another_host(browser: Browser, path: str) -> None:
    page = browser.ask_as_is("GET", path, {}, {})
    assert page.status == 404
    assert "location" not in page.response.headers


def test_the_api_takes_no_cookie(house: House, browser: Browser) -> None:
    signed_in(browser, house.person())
    (cookie,) = browser.cookies.items()
    headers = {"Cookie": "=".join(cookie), "Host": "localhost:8080"}
    for path in ("/v1/me", "/v1/sessions"):
        assert house.get(path, headers=headers).status_code == 401
        assert house.get(path, cookie[1]).status_code == 200


def test_a_cookie_that_is_no_session_is_nobody(house: House, browser: Browser) -> None:
    tenant = house.tenant()
    for wrong in (tenant.key, "ms_x", "ms_" + "a" * 48, "x" * 3000, '"ms_\\303"'):
        browser.cookies = {"menagerie-session": wrong}
        page = browser.get(START)
        assert page.title == "Sign in", wrong
        assert tenant.org_id not in page.response.text


def test_what_people_call_themselves_is_text(house: House, browser: Browser) -> None:
    person = house.person("<img src=x onerror=alert(1)> \"' {{ 7*7 }}")
    page = signed_in(browser, person)
    assert "<img src=x" not in page.response.text
    assert "&lt;img src=x onerror=alert(1)&gt; &#34;&#39; {{ 7*7 }}" in page.response.text
    page = browser.get(SIGN_IN)
    strange = Browser(house)
    strange_page = strange.send(strange.get(SIGN_IN), "Sign in", email='"><b>', password="x")
    assert strange_page.form("Sign in").values["email"] == '"><b>'
    assert "<b>" not in strange_page.response.text


def test_what_was_typed_as_a_secret_is_not_on_the_page_again(browser: Browser) -> None:
    page = browser.send(browser.get(SIGN_IN), "Sign in", email="x", password="hunter-of-snarks")
    assert page.status == 422
    assert "hunter" not in page.response.text
    page = browser.get(f"{INVITE}?token=mi_{'a' * 49}")
    page = browser.send(page, "Create account and join", name="Ada", password="hunter")
    assert "hunter" not in page.response.text
    assert page.form("Create account and join").values["name"] == "Ada"


def test_no_account_is_given_away_by_the_sign_in(house: House, browser: Browser) -> None:
    told = set()
    for email in (house.person().email, "nobody@example.com"):
        page = browser.send(browser.get(SIGN_IN), "Sign in", email=email, password="wrong")
        assert page.status == 401
        told.add(page.texts["alert"])
    assert told == {"The email address or the password is wrong."}


def test_without_https_only_this_machine_has_the_pages(house: House) -> None:
    for host, status in (
        ("localhost", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("menagerie.localhost:8080", 200),
        ("192.0.2.1:8080", 421),
        ("api.example.com", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("[::1", 421),
    ):
        page = Browser(house, host=host).get(SIGN_IN)
        assert page.status == status, host
        assert ("Sign in" in [form.button for form in page.forms]) == (status == 200)


def test_with_https_cookies_are_of_this_host_alone(house: House, tmp_path: Path) -> None:
    base = "https://api.example.com/databases/"
    with another(house, tmp_path, base_url=base) as there:
        browser = Browser(there, host="api.example.com")
        browser.secure = True
        page = browser.get(SIGN_IN)
        form = page.form("Sign in")
        assert form.action == "/databases/account/sign-in"
        assert browser.cookies.keys() == {"__Host-menagerie-form"}
        typed = {**form.values, "email": there.person().email, "password": PASSWORD}
        # The proxy takes the path off that its clients see.
        page = browser.ask_as_is("POST", SIGN_IN, typed, {"Content-Type": FORM})
        assert page.response.headers["location"] == "/databases/account/"
        assert browser.cookies.keys() == {"__Host-menagerie-session"}
        assert "/databases/account/static/" in browser.get(START).response.text
        # What somebody else could set for this host is no session.
        token = browser.cookies.pop("__Host-menagerie-session")
        browser.cookies["menagerie-session"] = token
        assert browser.ask_as_is("GET", START, {}, {}).status == 303
        link = invited(there, there.tenant(), "new@example.com")
        assert link.startswith("/databases/account/invite?token=mi_")


def test_sign_ins_by_pages_count_by_the_address_of_the_browser(
    house: House, tmp_path: Path
) -> None:
    proxy = "10.0.0.1"
    rates = RateLimits(authentication_per_minute=3)
    with another(house, tmp_path, rates=rates, trusted_proxies=("10.0.0.0/8",)) as there:

        def attempt(browser: Browser, email: str = "nobody@example.com") -> int:
            page = browser.get(SIGN_IN)
            return browser.send(page, "Sign in", email=email, password="wrong").status

        def behind(address: str) -> Browser:
            return Browser(there, address=proxy, forwarded_for=address)

        for make, one, other in (
            (lambda address: Browser(there, address=address), "192.0.2.7", "198.51.100.9"),
            (behind, "203.0.113.5", "203.0.114.5"),
        ):
            first = make(one)
            assert [attempt(first, f"{n}@{one}") for n in range(4)] == [401, 401, 401, 429]
            # A header that no trusted proxy has written is nobody's address.
            assert attempt(make(one), "again@example.com") == 429
            assert attempt(make(other), f"0@{other}") == 401
        liar = Browser(there, address="192.0.2.7", forwarded_for="198.51.100.77")
        assert attempt(liar) == 429
        # And what the API was asked directly counts too.
        body = {"email": "direct@example.com", "password": "wrong"}
        statuses = [
            there.post("/v1/sessions", json=body, address="192.0.2.200").status_code
            for _ in range(3)
        ]
        assert statuses == [401] * 3
        page = Browser(there, address="192.0.2.200").get(SIGN_IN)
        limited = Browser(there, address="192.0.2.200")
        page = limited.send(limited.get(SIGN_IN), "Sign in", email="a@b.c", password="wrong")
        assert page.status == 429
        assert page.texts["alert"].startswith("Too many attempts from your address. Try again in")
        assert int(page.response.headers["retry-after"]) > 0


def test_a_session_is_shown_with_the_address_of_the_browser(house: House, tmp_path: Path) -> None:
    with another(house, tmp_path, trusted_proxies=("10.0.0.0/8",)) as there:
        browser = Browser(there, address="10.0.0.1", forwarded_for="198.51.100.7, 203.0.113.99")
        page = signed_in(browser, there.person())
        assert "203.0.113.99" in page.response.text
        assert "10.0.0.1" not in page.response.text


def test_pages_are_limited_by_address(house: House, tmp_path: Path) -> None:
    with another(house, tmp_path, rates=RateLimits(pages_per_minute=4)) as there:
        browser = Browser(there)
        assert [browser.get(SIGN_IN).status for _ in range(5)] == [200] * 4 + [429]
        page = browser.get(SIGN_IN)
        assert page.title == "Rate limited"
        assert int(page.response.headers["retry-after"]) > 0
        assert Browser(there, address="198.51.100.7").get(SIGN_IN).status == 200


def test_a_large_form_is_refused_unread(browser: Browser) -> None:
    form = browser.get(SIGN_IN).form("Sign in")
    page = browser.post(form.action, {**form.values, "email": "x" * 20_000})
    assert page.status == 413


def test_one_browser_has_one_session(house: House, browser: Browser) -> None:
    one, other = house.person(), house.person()
    signed_in(browser, one)
    former = browser.cookies["menagerie-session"]
    form_page = browser.get("/account/second-factor")
    proof = form_page.form("Set up an authenticator app").values["proof"]
    typed = {"proof": proof, "email": other.email, "password": PASSWORD}
    assert other.email in browser.post(SIGN_IN, typed).response.text
    assert house.get("/v1/me", former).status_code == 401


def test_forms_that_are_sent_at_once_leave_one_account(house: House) -> None:
    link = invited(house, house.tenant(), "crowd@example.com")
    browser = Browser(house)
    form = browser.get(link).form("Create account and join")
    typed = {**form.values, "name": "Crowd", "password": "staple-of-nine-oaks"}
    requests = [browser.as_request(form.action, {**typed, "key": f"{n:022}"}) for n in range(20)]
    answers = house.together(*requests)
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses.count(303) == 1
    assert set(statuses) <= {303, 409, 429, 503}
