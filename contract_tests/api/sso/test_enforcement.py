"""Where single sign-on is enforced, nothing else lets in: but for owners, who are all told."""

from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from contract_tests.api import letters
from contract_tests.api.harness import PASSWORD, House, Person
from contract_tests.api.rows import is_problem
from contract_tests.api.second_factor import code, enrol, enrolled
from contract_tests.api.soft_authenticator import Authenticator
from contract_tests.api.sso.with_domains import (
    Enforcing,
    at_domain,
    by_sso,
    change,
    claim,
    enforcing,
    member_at,
    verified,
)
from contract_tests.api.with_passkeys import SIGN_IN, SIGN_IN_OPTIONS, added, asked
from storage.access import memberships, organizations, users
from storage.access.sessions import UserSession
from storage.events.audit import AuditEntry
from storage.sso import connections, domains
from storage.sso.domains import SsoDomain


@pytest.fixture
def made(house: House) -> Enforcing:
    return enforcing(house)


def sign_in(house: House, email: str, password: str = PASSWORD, **body: Any) -> httpx.Response:
    return house.post("/v1/sessions", json={"email": email, "password": password, **body})


def is_required(answer: httpx.Response) -> dict[str, Any]:
    is_problem(answer, 403)
    problem: dict[str, Any] = answer.json()
    assert problem["code"] == "sso_required", problem
    return problem


def test_a_password_is_not_even_looked_at(house: House, made: Enforcing) -> None:
    """So that nothing tells whether it was right, nor whether there is anybody."""
    person = member_at(house, made)
    answers = [
        sign_in(house, person.email),
        sign_in(house, person.email.upper()),
        sign_in(house, person.email, "wrong-horse-battery"),
        sign_in(house, f"nobody@{made.domain}"),
        sign_in(house, person.email, break_glass=False, totp_code="123456"),
    ]
    told = [is_required(answer) for answer in answers]
    assert {problem["detail"] for problem in told} == {told[0]["detail"]}
    url = f"http://127.0.0.1:8080/account/sso/{made.connection_id}"
    assert {problem["sign_in_url"] for problem in told} == {url}
    # Other domains are what they were.
    assert sign_in(house, house.person().email).status_code == 201
    assert sign_in(house, f"nobody@eu.{made.domain}").status_code == 401


def test_whoever_is_let_in_by_it_acts_and_others_do_not(house: House, made: Enforcing) -> None:
    person = member_at(house, made)
    path = f"{made.tenant.path}/projects"
    is_required(house.get(path, person.session))
    assert house.get(path, by_sso(house, person, made)).status_code == 200
    # Guests have addresses of their own, and programs their keys.
    guest = house.member(made.tenant.org_id, "developer")
    assert house.get(path, guest.session).status_code == 200
    key, _ = house.key(made.tenant.org_id, person, "developer")
    assert house.get(path, key).status_code == 200
    # It is the organization that demands it: elsewhere they act as before.
    elsewhere = house.tenant("Elsewhere", owner=person)
    assert house.get(f"{elsewhere.path}/projects", person.session).status_code == 200


def test_it_holds_from_the_next_request_on_and_ends_so(house: House) -> None:
    tenant = house.tenant("Turning")
    made = verified(house, tenant)
    person = at_domain(house, house.member(tenant.org_id, "developer"), made.domain)
    path = f"{tenant.path}/projects"
    assert house.get(path, person.session).status_code == 200
    assert change(house, tenant, made.domain_id, is_enforced=True).status_code == 200
    is_required(house.get(path, person.session))
    assert change(house, tenant, made.domain_id, is_enforced=False).status_code == 200
    assert house.get(path, person.session).status_code == 200
    change(house, tenant, made.domain_id, is_enforced=True)
    gone = house.request("DELETE", f"{tenant.path}/sso/domains/{made.domain_id}", tenant.key)
    assert gone.status_code == 204
    assert house.get(path, person.session).status_code == 200
    assert sign_in(house, person.email).status_code == 201


def test_what_is_claimed_or_verified_alone_refuses_nobody(house: House, made: Enforcing) -> None:
    """Another organization that names the domain changes nothing for anybody."""
    mine = verified(house, house.tenant("Gentle"))
    person = at_domain(house, house.person(), mine.domain)
    assert sign_in(house, person.email).status_code == 201
    other = house.tenant("Attacker")
    claimed = claim(house, other, mine.domain)
    is_problem(change(house, other, claimed["id"], is_enforced=True), 409)
    assert sign_in(house, person.email).status_code == 201
    is_problem(change(house, other, made.domain_id, is_enforced=False), 404)
    is_required(sign_in(house, f"nobody@{made.domain}"))


def test_no_letter_gives_a_password(house: House, made: Enforcing) -> None:
    person = at_domain(house, house.person(), f"not-yet.{made.domain}")
    token = letters.reset(house, person.email)
    with house.database.write() as db:
        email = users.locked(db, person.id).email = f"{person.id.lower()}@{made.domain}"
    body = {"reset_token": token, "password": "staple-of-nine-oaks"}
    is_required(house.post("/v1/password-resets/actions/complete", json=body))
    is_required(house.post("/v1/password-resets", json={"email": email}))
    is_required(house.post("/v1/password-resets", json={"email": f"nobody@{made.domain}"}))


def test_no_invite_makes_an_account_with_a_password(house: House, made: Enforcing) -> None:
    elsewhere = house.tenant("Elsewhere")
    for tenant in (made.tenant, elsewhere):
        token = letters.invite(house, tenant, f"{tenant.org_id.lower()}@{made.domain}")
        body = {"invite_token": token, "name": "Bob", "password": "staple-of-nine-oaks"}
        is_required(house.post("/v1/users", json=body))
    person = at_domain(house, house.person(), made.domain)
    token = letters.invite(house, made.tenant, person.email)
    is_required(house.post(f"/v1/invites/{token}/accept", person.session))
    with house.database.read() as db:
        assert memberships.find(db, made.tenant.org_id, person.id) is None


def test_nobody_leaves_the_domain_to_stay_in(house: House, made: Enforcing) -> None:
    """With an address of elsewhere the password would be good again."""
    person = member_at(house, made)
    body = {"email": letters.new_email(), "password": PASSWORD}
    is_required(house.post("/v1/me/email", person.session, json=body))
    # Whoever is no member gives nothing away by it.
    stranger = at_domain(house, house.person(), made.domain)
    assert house.post("/v1/me/email", stranger.session, json=body).status_code == 202


def test_a_passkey_is_no_way_around_it(house: House, made: Enforcing) -> None:
    person = house.person()
    maker = added(house, person)
    at_domain(house, person, made.domain)
    refused = house.post(SIGN_IN, json={"credential": maker.get(asked(house, SIGN_IN_OPTIONS))})
    assert is_required(refused)["sign_in_url"].endswith(made.connection_id)


def broken(house: House, person: Person, totp: Any, **body: Any) -> httpx.Response:
    given = {"totp_code": code(house, totp, 1), "break_glass": True, **body}
    return sign_in(house, person.email, **given)


def test_an_owner_breaks_the_glass_and_all_are_told(house: House) -> None:
    tenant = house.tenant("Emergency")
    made = verified(house, tenant)
    owner = at_domain(house, tenant.owner, made.domain)
    totp = enrolled(house, owner)
    second = house.member(tenant.org_id, "owner")
    change(house, tenant, made.domain_id, is_enforced=True)
    is_required(sign_in(house, owner.email, totp_code=code(house, totp, 1)))
    is_problem(broken(house, owner, totp, password="wrong-horse-battery"), 401)
    is_problem(sign_in(house, owner.email, break_glass=True), 422)
    opened = broken(house, owner, totp)
    assert opened.status_code == 201, opened.text
    house.settle()
    told = [one for one in house.letters.sent.values() if "without single sign-on" in one.subject]
    assert {one.to for one in told if made.domain in one.text} == {owner.email, second.email}
    rows = select(AuditEntry).where(AuditEntry.action == "sso.break_glass")
    with house.database.read() as db:
        entries = list(db.scalars(rows.where(AuditEntry.org_id == tenant.org_id)))
    assert [(one.actor_id, one.detail) for one in entries] == [(owner.id, {"domain": made.domain})]
    session = opened.json()["token"]
    off = house.request(
        "PATCH",
        f"{tenant.path}/sso/domains/{made.domain_id}",
        session,
        json={"is_enforced": False},
    )
    assert off.status_code == 200, off.text


def test_it_is_an_owners_way_and_ends_with_that(house: House, made: Enforcing) -> None:
    admin = house.member(made.tenant.org_id, "admin")
    totp = enrolled(house, admin)
    admin = at_domain(house, admin, made.domain)
    is_required(broken(house, admin, totp))
    with house.database.write() as db:
        memberships.fetch(db, made.tenant.org_id, admin.id).role = "owner"
    session = broken(house, admin, totp).json()["token"]
    assert house.get(f"{made.tenant.path}/projects", session).status_code == 200
    with house.database.write() as db:
        memberships.fetch(db, made.tenant.org_id, admin.id).role = "admin"
    is_required(house.get(f"{made.tenant.path}/projects", session))


def test_an_owner_of_elsewhere_is_not_locked_out_there(house: House, made: Enforcing) -> None:
    """Whoever has the domain of an address must not take another organization from its owner."""
    elsewhere = house.tenant("Elsewhere")
    totp = enrolled(house, elsewhere.owner)
    owner = at_domain(house, elsewhere.owner, made.domain)
    with house.database.write() as db:
        memberships.create(db, made.tenant.org_id, owner.id, "admin")
    before = len(house.letters.sent)
    session = broken(house, owner, totp).json()["token"]
    assert house.get(f"{elsewhere.path}/projects", session).status_code == 200
    is_required(house.get(f"{made.tenant.path}/projects", session))
    house.settle()
    assert len(house.letters.sent) == before, "nothing happened that others have to know of"


def test_an_owner_breaks_it_with_a_passkey(house: House) -> None:
    tenant = house.tenant("Emergency")
    maker = added(house, tenant.owner, Authenticator())
    made = verified(house, tenant)
    at_domain(house, tenant.owner, made.domain)
    assert change(house, tenant, made.domain_id, is_enforced=True).status_code == 200
    body = {"credential": maker.get(asked(house, SIGN_IN_OPTIONS)), "break_glass": True}
    opened = house.post(SIGN_IN, json=body)
    assert opened.status_code == 201, opened.text
    assert house.get(f"{tenant.path}/projects", opened.json()["token"]).status_code == 200


def test_break_glass_is_nothing_where_nothing_is_enforced(house: House) -> None:
    person = house.person()
    totp = enrol(house, person)
    house.post("/v1/me/totp/actions/confirm", person.session, json={"code": code(house, totp)})
    opened = broken(house, person, totp)
    assert opened.status_code == 201
    with house.database.read() as db:
        marked = select(func.count()).select_from(UserSession).where(UserSession.is_break_glass)
        assert db.scalar(marked.where(UserSession.id == opened.json()["id"])) == 0


def test_the_organization_says_what_its_domains_say(house: House, made: Enforcing) -> None:
    """Requests are held to what stands there; the domains are where it is decided."""
    with house.database.read() as db:
        for org_id in set(db.scalars(select(SsoDomain.org_id))):
            rows = select(SsoDomain.domain).where(SsoDomain.org_id == org_id)
            enforced = set(db.scalars(rows.where(SsoDomain.is_enforced)))
            assert set(organizations.fetch(db, org_id).sso_enforced_domains or ()) == enforced
    assert made.domain


@pytest.mark.parametrize("status", ["active", "pending_verification", "disabled", None])
def test_discovery_tells_of_domains_alone(house: House, status: str | None) -> None:
    tenant = house.tenant("Found")
    made = verified(house, tenant)
    person = at_domain(house, house.member(tenant.org_id, "member"), made.domain)
    with house.database.write() as db:
        if status is None:
            domains.fetch(db, tenant.org_id, made.domain_id).connection_id = None
        else:
            connections.fetch(db, tenant.org_id, made.connection_id).status = status
    answers = [
        house.get("/v1/sso/discover", params={"email": email}).json()
        for email in (person.email, f"nobody@{made.domain}", f"NOBODY@{made.domain.upper()}")
    ]
    connection = {
        "id": made.connection_id,
        "kind": "oidc",
        "sign_in_url": f"http://127.0.0.1:8080/account/sso/{made.connection_id}",
    }
    is_usable = status in ("active", "pending_verification")
    expected = {"domain": made.domain, "is_required": False}
    expected |= {"connection": connection if is_usable else None}
    assert answers == [expected] * 3
    unknown = house.get("/v1/sso/discover?email=ada@nowhere.example.com").json()
    assert set(unknown) == set(expected)
    assert unknown["connection"] is None
    is_problem(house.get("/v1/sso/discover?email=nothing"), 422)
    is_problem(house.get("/v1/sso/discover"), 422)
