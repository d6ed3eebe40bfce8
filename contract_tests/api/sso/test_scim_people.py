"""What it means that a provider pushes somebody: who comes, who goes, and what stays."""

from typing import Any

import pytest
from sqlalchemy import select, update

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.sso.provider import ERROR, Provider
from storage.access import memberships, team_members, teams, users
from storage.events import audit
from storage.events.audit import AuditFilter
from storage.events.events import Event
from storage.roles import roles
from storage.sso.domains import SsoDomain


@pytest.fixture
def provider(house: House) -> Provider:
    return Provider(house)


def colleague(provider: Provider, login: str, role: str = "member") -> Person:
    """A member who came by hand, with an address in the provider's domain."""
    person = provider.house.member(provider.org_id, role)
    email = provider.address(login)
    with provider.house.database.write() as db:
        users.locked(db, person.id).email = email
    return Person(person.id, email, person.session)


def acts(provider: Provider, target: str) -> list[tuple[str, str, str | None, dict[str, Any]]]:
    """What the log says was done to it, oldest first."""
    with provider.house.database.read() as db:
        chosen = AuditFilter(target=target)
        found = audit.page(db, provider.org_id, chosen, limit=50, after=None).items
    return [(one.action, one.actor_kind, one.actor_id, one.detail) for one in reversed(found)]


def published(provider: Provider, kind: str) -> list[dict[str, Any]]:
    with provider.house.database.read() as db:
        rows = select(Event).where(Event.org_id == provider.org_id, Event.type == kind)
        return [one.data for one in db.scalars(rows.order_by(Event.id))]


def test_whoever_is_pushed_is_a_member_with_an_account(provider: Provider) -> None:
    made = provider.user("ada", name={"givenName": "Ada", "familyName": "Lovelace"})
    assert provider.role(made["id"]) == "member"
    with provider.house.database.read() as db:
        user = users.by_email(db, provider.address("ada"))
        assert user is not None
        assert (user.id, user.name, user.email_verified_at) == (made["id"], "Ada Lovelace", None)
        assert user.password_hash is None
    told = {"linked": False, "active": True, "role": "member"}
    assert acts(provider, made["id"]) == [
        ("scim_user.create", "scim_token", provider.token_id, told)
    ]
    added = {"user_id": made["id"], "email": provider.address("ada"), "role": "member"}
    assert published(provider, "org.member.added.v1") == [{**added, "source": "scim"}]


def test_people_come_with_the_role_of_the_token(house: House) -> None:
    provider = Provider(house, role="auditor")
    assert provider.role(provider.user("ada")["id"]) == "auditor"


def test_somebody_with_an_account_keeps_it_and_a_member_their_role(provider: Provider) -> None:
    admin = colleague(provider, "grace", "admin")
    made = provider.user("grace", displayName="G. Hopper")
    assert made["id"] == admin.id
    assert provider.role(admin.id) == "admin"
    with provider.house.database.read() as db:
        assert users.of_ids(db, [admin.id])[admin.id].name != "G. Hopper"
    assert provider.house.get("/v1/me", admin.session).status_code == 200
    assert published(provider, "org.member.added.v1") == []


def test_nobody_is_brought_in_whose_domain_is_not_verified(provider: Provider) -> None:
    house, other = provider.house, Provider(provider.house)
    stranger = house.person()
    for email in ("eve@elsewhere.example", stranger.email, other.address("ada")):
        body = {"userName": email, "emails": [{"value": email}]}
        refused = provider.ask("POST", "/Users", {"schemas": [], **body})
        assert refused.status_code == 403, refused.text
        assert "has not verified the domain" in refused.json()["detail"]
    assert provider.role(stranger.id) is None
    # An address decides, and not the name that the provider has for somebody.
    body = {"userName": provider.address("x"), "emails": [{"value": stranger.email}]}
    assert provider.ask("POST", "/Users", body).status_code == 403
    nobody = provider.ask("POST", "/Users", {"userName": "ada"})
    assert (nobody.status_code, nobody.json()["scimType"]) == (400, "invalidValue")


def test_an_organization_decides_which_of_its_domains_may_come(provider: Provider) -> None:
    provider.house.change_org(provider.org_id, allowed_email_domains=["example.net"])
    email = provider.address("ada")
    refused = provider.ask("POST", "/Users", {"userName": email})
    assert refused.status_code == 403
    assert "allowed_email_domains" in refused.json()["detail"]


def test_one_who_is_deactivated_is_out_and_comes_back_with_what_they_had(
    provider: Provider,
) -> None:
    house, owner = provider.house, provider.tenant.owner
    person = colleague(provider, "ada", "developer")
    key, _ = house.key(provider.org_id, person, "developer")
    with house.database.write() as db:
        team = teams.create(db, provider.org_id, {"name": "Data", "slug": "data"})
        member = memberships.fetch(db, provider.org_id, person.id)
        team_members.put(db, team, member, "admin")
        made = roles.create(
            db, provider.org_id, name="r", permissions=["siem:read"], created_by=owner.id
        )
        roles.assign(db, made, person.id, None, created_by=owner.id)
    path = f"/v1/orgs/{provider.org_id}"
    before = house.get(f"{path}/me/permissions", person.session).json()
    assert len(before) > 1
    user = provider.user("ada")
    assert house.get(path, person.session).status_code == 200
    assert house.get(path, key).status_code == 200

    out = provider.patch(
        f"/Users/{user['id']}", {"op": "replace", "path": "active", "value": False}
    )
    assert (out.status_code, out.json()["active"]) == (200, False)
    assert house.get(path, person.session).status_code == 404
    assert house.get(path, key).status_code == 401
    # The rest of what is theirs is none of the organization's.
    assert house.get("/v1/me", person.session).status_code == 200
    listed = house.get(f"{path}/members", provider.tenant.key).json()["items"]
    assert person.id not in {one["user_id"] for one in listed}
    assert provider.ask("GET", f"/Users/{user['id']}").json()["active"] is False

    back = provider.patch(
        f"/Users/{user['id']}", {"op": "replace", "path": "active", "value": True}
    )
    assert back.json()["active"] is True
    assert house.get(f"{path}/me/permissions", person.session).json() == before
    assert house.get(path, key).status_code == 401
    done = [
        (action, told.get("api_keys_revoked")) for action, _, _, told in acts(provider, person.id)
    ]
    assert done == [
        ("scim_user.create", None),
        ("scim_user.deactivate", 1),
        ("scim_user.activate", None),
    ]
    assert published(provider, "org.member.removed.v1") == [
        {"user_id": person.id, "role": "developer", "left": False}
    ]


def test_every_replica_sees_it_on_the_next_request(make_house: Any) -> None:
    one, two = make_house(), make_house()
    provider = Provider(one)
    person = colleague(provider, "ada")
    key, _ = one.key(provider.org_id, person, "member")
    path = f"/v1/orgs/{provider.org_id}"
    user = provider.user("ada")
    for house in (one, two):
        assert house.get(path, person.session).status_code == 200
        assert house.get(path, key).status_code == 200
    provider.patch(f"/Users/{user['id']}", {"op": "replace", "path": "active", "value": False})
    for house in (one, two):
        assert house.get(path, person.session).status_code == 404
        assert house.get(path, key).status_code == 401


def test_a_stream_of_somebody_deactivated_ends(make_house: Any) -> None:
    house = make_house(stream_ttl_s=20.0)
    provider = Provider(house)
    person = colleague(provider, "ada", "admin")
    user = provider.user("ada")

    def deactivate() -> None:
        replica.patch(f"/Users/{user['id']}", {"op": "replace", "path": "active", "value": False})

    other = make_house()
    replica = provider.on(other)
    path = f"/v1/orgs/{provider.org_id}/events"
    began = house.now()
    followed = house.during(deactivate, "GET", path, person.session)
    assert followed.status_code == 200
    assert (house.now() - began).total_seconds() < 15


def test_the_last_owner_stays(provider: Provider) -> None:
    owner = provider.tenant.owner
    with provider.house.database.write() as db:
        users.locked(db, owner.id).email = provider.address("owner")
    user = provider.user("owner")
    assert user["id"] == owner.id
    for refused in (
        provider.patch(f"/Users/{user['id']}", {"op": "replace", "value": {"active": False}}),
        provider.ask("PUT", f"/Users/{user['id']}", {**user, "active": False}),
        provider.ask("DELETE", f"/Users/{user['id']}"),
    ):
        assert (refused.status_code, refused.json()["schemas"]) == (403, [ERROR])
        assert "last owner" in refused.json()["detail"]
    assert provider.role(owner.id) == "owner"
    assert provider.ask("GET", f"/Users/{user['id']}").json()["active"] is True


def test_the_last_owner_stays_under_pushes_at_once(house: House) -> None:
    provider = Provider(house)
    people = [provider.tenant.owner, *(house.member(provider.org_id, "owner") for _ in range(3))]
    ids = []
    for number, person in enumerate(people):
        with house.database.write() as db:
            users.locked(db, person.id).email = provider.address(f"o{number}")
        ids.append(provider.user(f"o{number}")["id"])
    answers = house.together(
        *(("DELETE", f"/scim/v2/Users/{user_id}", provider.token, {}) for user_id in ids)
    )
    assert sorted(one.status_code for one in answers) == [204, 204, 204, 403]
    assert [provider.role(user_id) for user_id in ids].count("owner") == 1


def test_an_owner_who_comes_back_is_told_of(provider: Provider) -> None:
    second = colleague(provider, "second", "owner")
    user = provider.user("second")
    for active in (False, True):
        provider.patch(f"/Users/{user['id']}", {"op": "replace", "value": {"active": active}})
    assert provider.role(second.id) == "owner"
    alerts = provider.house.get(f"/v1/orgs/{provider.org_id}/alerts", provider.tenant.key).json()
    assert any(provider.address("second") in one["title"] for one in alerts["items"])


def test_one_who_is_deleted_leaves_what_they_made(provider: Provider) -> None:
    house, tenant = provider.house, provider.tenant
    person = colleague(provider, "ada", "admin")
    made = house.post(
        f"{tenant.path}/projects", person.session, json={"name": "Kept", "slug": "kept"}
    ).json()
    user = provider.user("ada")
    assert provider.ask("DELETE", f"/Users/{user['id']}").status_code == 204
    assert provider.role(person.id) is None
    assert provider.ask("GET", f"/Users/{user['id']}").status_code == 404
    assert house.get(f"{tenant.path}/projects/{made['id']}", tenant.key).status_code == 200
    # They may be pushed again, and come as anybody does.
    assert provider.user("ada")["id"] == person.id
    assert provider.role(person.id) == "member"


def test_people_who_came_by_hand_are_none_of_the_providers(provider: Provider) -> None:
    by_hand = colleague(provider, "hand")
    listed = provider.ask("GET", "/Users").json()
    assert listed["totalResults"] == 0
    assert provider.ask("GET", f"/Users/{by_hand.id}").status_code == 404
    assert provider.ask("DELETE", f"/Users/{by_hand.id}").status_code == 404
    provider.user("other")
    assert provider.role(by_hand.id) == "member"


def test_whoever_is_removed_by_hand_is_not_active(provider: Provider) -> None:
    user = provider.user("ada")
    path = f"/v1/orgs/{provider.org_id}/members/{user['id']}"
    assert provider.house.request("DELETE", path, provider.tenant.key).status_code == 204
    assert provider.ask("GET", f"/Users/{user['id']}").json()["active"] is False
    assert provider.ask("GET", "/Users?filter=active eq true").json()["totalResults"] == 0


def test_the_plan_has_seats(house: House) -> None:
    provider = Provider(house, house.tenant(plan="solo"))
    made = [provider.user(f"u{number}") for number in range(2)]
    body = {"userName": provider.address("late")}
    refused = provider.ask("POST", "/Users", body)
    assert refused.status_code == 403
    assert "3 seats" in refused.json()["detail"]
    assert provider.ask("GET", "/Users").json()["totalResults"] == 2
    inactive = provider.ask("POST", "/Users", {**body, "active": False})
    assert inactive.status_code == 201
    assert provider.role(inactive.json()["id"]) is None
    full = provider.patch(
        f"/Users/{inactive.json()['id']}", {"op": "add", "value": {"active": True}}
    )
    assert full.status_code == 403
    provider.patch(f"/Users/{made[0]['id']}", {"op": "replace", "value": {"active": False}})
    full = provider.patch(
        f"/Users/{inactive.json()['id']}", {"op": "add", "value": {"active": True}}
    )
    assert full.status_code == 200


def test_an_address_that_changes_is_told_and_the_account_keeps_its_own(
    provider: Provider,
) -> None:
    """Or a provider could take over an account that is in other organizations, too."""
    other = provider.house.tenant()
    person = colleague(provider, "ada")
    with provider.house.database.write() as db:
        memberships.create(db, other.org_id, person.id, "owner")
    user = provider.user("ada")
    renamed = provider.address("eve")
    emails = [{"value": renamed, "primary": True}]
    changed = {**user, "userName": renamed, "emails": emails}
    assert provider.ask("PUT", f"/Users/{user['id']}", changed).status_code == 200
    with provider.house.database.read() as db:
        assert users.of_ids(db, [person.id])[person.id].email == provider.address("ada")
    found = provider.ask("GET", f'/Users?filter=userName eq "{renamed}"').json()
    assert [one["id"] for one in found["Resources"]] == [user["id"]]


def test_an_account_made_for_somebody_has_the_name_that_they_have(provider: Provider) -> None:
    user = provider.user("ada", displayName="Ada Byron")
    provider.patch(
        f"/Users/{user['id']}", {"op": "replace", "path": "displayName", "value": "Ada King"}
    )
    with provider.house.database.read() as db:
        assert users.of_ids(db, [user["id"]])[user["id"]].name == "Ada King"


def test_a_domain_that_is_lost_lets_nobody_back_in(provider: Provider) -> None:
    user = provider.user("ada")
    provider.patch(f"/Users/{user['id']}", {"op": "replace", "value": {"active": False}})
    with provider.house.database.write() as db:
        lost = update(SsoDomain).where(SsoDomain.org_id == provider.org_id)
        db.execute(lost.values(verified_at=None, status="failed"))
    refused = provider.patch(f"/Users/{user['id']}", {"op": "replace", "value": {"active": True}})
    assert refused.status_code == 403


def test_a_closed_organization_changes_no_more(house: House) -> None:
    tenant: Tenant = house.tenant(plan="enterprise")
    provider = Provider(house, tenant)
    user = provider.user("ada")
    house.change_org(tenant.org_id, status="closed")
    assert provider.ask("GET", f"/Users/{user['id']}").status_code == 200
    refused = provider.ask("DELETE", f"/Users/{user['id']}")
    assert (refused.status_code, refused.json()["schemas"]) == (409, [ERROR])
