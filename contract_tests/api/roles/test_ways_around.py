"""Ways to more rights than were given, or to keep what was taken away: each is closed."""

from typing import Any

import pytest

from contract_tests.api.access.team_helpers import in_team, outsider, put, team
from contract_tests.api.harness import PASSWORD, House, Person, Tenant
from contract_tests.api.letters import token_of_last
from contract_tests.api.roles.role_helpers import assign, entries, mine, role
from contract_tests.api.rows import is_problem
from control.policy import permissions


@pytest.fixture
def tenant(house: House) -> Tenant:
    return house.tenant(plan="team")


def account(house: House, tenant: Tenant, token: str, name: str, role: str) -> Any:
    body = {"name": name, "role": role}
    made = house.post(f"{tenant.path}/service-accounts", token, json=body)
    assert made.status_code == 201, made.text
    return made.json()


def with_role(house: House, tenant: Tenant, person: Person, *held: str, name: str) -> Person:
    assert assign(house, role(house, tenant, *held, name=name), tenant.key, person.id).is_success
    return person


def test_no_key_of_somebody_else_counts_as_an_owners(house: House, tenant: Tenant) -> None:
    """What admins hold can be made all there is, but what owners alone may is theirs."""
    here = house.instance(tenant)
    body = {"permissions": sorted(permissions.ALL)}
    changed = house.request("PATCH", f"{tenant.path}/predefined-roles/admin", tenant.key, json=body)
    assert changed.status_code == 200, changed.text
    admin = house.member(tenant.org_id, "admin")
    made = house.post(
        f"{tenant.path}/api-keys", admin.session, json={"name": "own", "role": "owner"}
    )
    assert made.status_code == 201
    erase = f"{tenant.path}/instances/{here}/actions/erase"
    is_problem(house.post(erase, admin.session), 403, "owner_required")
    is_problem(house.post(erase, made.json()["key"]), 403, "owner_required")
    assert house.get(tenant.path, made.json()["key"]).json()["role"] == "admin"
    assert house.get(tenant.path, tenant.key).json()["role"] == "owner"


def test_an_invite_of_a_suspended_key_lets_nobody_in(house: House, tenant: Tenant) -> None:
    """Whoever stole a key, and is found out, has invited themselves before."""
    stolen, key_id = house.key(tenant.org_id, tenant.owner, "admin")
    thief = house.person()
    body = {"email": thief.email, "role": "admin"}
    assert house.post(f"{tenant.path}/invites", stolen, json=body).status_code == 201
    token = token_of_last(house)
    house.change_key(tenant.org_id, key_id, suspended_at=house.now(), suspended_reason="leaked")
    accepted = house.post(f"/v1/invites/{token}/accept", thief.session)
    is_problem(accepted, 409, "invite_revoked")
    house.change_key(tenant.org_id, key_id, suspended_at=None, suspended_reason=None)
    assert house.post(f"/v1/invites/{token}/accept", thief.session).status_code == 200


def test_keys_made_with_a_key_end_however_that_one_ends(house: House, tenant: Tenant) -> None:
    """By the person's leaving, or by disabling the account that it was of."""
    admin = house.member(tenant.org_id, "admin")
    theirs, _ = house.key(tenant.org_id, admin, "admin")
    kept = account(house, tenant, admin.session, "kept", "member")
    first = account(house, tenant, theirs, "first", "admin")
    second = account(house, tenant, first["api_key"]["key"], "second", "member")
    third = account(house, tenant, tenant.key, "third", "admin")
    fourth = account(house, tenant, third["api_key"]["key"], "fourth", "member")
    gone = house.request("DELETE", f"{tenant.path}/members/{admin.id}", tenant.key)
    assert gone.status_code == 204
    for each in (first, second):
        is_problem(house.get("/v1/me", each["api_key"]["key"]), 401)
    for each in (kept, third, fourth):
        assert house.get("/v1/me", each["api_key"]["key"]).status_code == 200
    path = f"{tenant.path}/service-accounts/{third['id']}/actions/disable"
    assert house.post(path, tenant.key).status_code == 200
    is_problem(house.get("/v1/me", fourth["api_key"]["key"]), 401)
    (entry,) = entries(house, tenant, "service_account.disable")
    assert entry["detail"]["api_keys_revoked"] == 2


def test_keys_that_a_service_account_makes_are_its_own(house: House, tenant: Tenant) -> None:
    made = account(house, tenant, tenant.key, "builds", "developer")
    body = {"name": "another", "role": "member"}
    key = house.post(f"{tenant.path}/api-keys", made["api_key"]["key"], json=body).json()
    assert (key["created_by"], key["service_account"]) == (made["id"], True)


def test_nobody_wakes_or_ends_a_key_that_reaches_further(house: House, tenant: Tenant) -> None:
    """A developer has instances:read in Everyone, and a key of an owner has it in every team."""
    blue = team(house, tenant)
    developer = house.member(tenant.org_id, "developer")
    scopes = ["instances:read", "credentials:reveal"]
    _, wide = house.key(tenant.org_id, tenant.owner, "owner", scopes=scopes)
    _, narrow = house.key(
        tenant.org_id, house.member(tenant.org_id, "member"), "member", scopes=scopes
    )
    lead = in_team(house, tenant, blue, "admin")
    _, elsewhere = house.key(tenant.org_id, lead, "member", scopes=scopes)
    for key_id in (wide, narrow, elsewhere):
        house.change_key(tenant.org_id, key_id, suspended_at=house.now(), suspended_reason="leaked")
    for key_id in (wide, elsewhere):
        path = f"{tenant.path}/api-keys/{key_id}"
        is_problem(house.post(f"{path}/actions/unsuspend", developer.session), 403)
        is_problem(house.request("DELETE", path, developer.session), 403)
    path = f"{tenant.path}/api-keys/{narrow}"
    assert house.post(f"{path}/actions/unsuspend", developer.session).status_code == 200
    assert house.request("DELETE", path, developer.session).status_code == 204


def test_nobody_takes_a_role_in_a_team_that_holds_more_than_they_have(
    house: House, tenant: Tenant
) -> None:
    blue = team(house, tenant)
    lead, viewer = (in_team(house, tenant, blue, one) for one in ("admin", "viewer"))
    weak = with_role(
        house, tenant, outsider(house, tenant), "team:write", *permissions.TEAM_ROLES["viewer"],
        name="puts people into teams",
    )  # fmt: skip
    for answer in (
        put(house, blue, weak.session, lead, "viewer"),
        house.request("DELETE", f"{blue}/members/{lead.id}", weak.session),
    ):
        is_problem(answer, 403, "role_exceeds_yours")
    assert put(house, blue, weak.session, viewer, "viewer").status_code == 200
    gone = house.request("DELETE", f"{blue}/members/{viewer.id}", weak.session)
    assert gone.status_code == 204
    # So it is in Everyone, which people are in by their role in the organization.
    everyone = f"{tenant.path}/teams/team_{tenant.org_id.removeprefix('org_')}"
    developer = house.member(tenant.org_id, "developer")
    path = f"{everyone}/members/{developer.id}"
    is_problem(house.request("DELETE", path, weak.session), 403, "role_exceeds_yours")
    assert house.request("DELETE", path, tenant.key).status_code == 204


def test_a_restore_elsewhere_needs_what_lets_data_out(house: House, tenant: Tenant) -> None:
    """Who may make backups alone would read them as the operator of another project."""
    blue = team(house, tenant)
    here = house.instance(tenant)
    keeper = in_team(house, tenant, blue, "operator")
    held = ("instances:read", "projects:read", "backups:read", "backups:write")
    with_role(house, tenant, keeper, *held, name="keeps backups")
    body = {"name": "Blue", "team_id": blue.rpartition("/")[2]}
    project = house.post(f"{tenant.path}/projects", tenant.key, json=body).json()["id"]
    backups = f"{tenant.path}/instances/{here}/backups"
    backup = house.post(backups, keeper.session, json={}).json()["id"]
    house.settle()
    restore = f"{backups}/{backup}/actions/restore"
    refused = house.post(restore, keeper.session, json={"project_id": project})
    is_problem(refused, 403, "permission_missing")
    assert "data:export" in refused.json()["detail"]
    with_role(house, tenant, keeper, "data:export", name="exports")
    made = house.post(restore, keeper.session, json={"project_id": project})
    assert made.status_code == 201, made.text


def test_nobody_moves_a_project_to_where_they_may_do_more_with_its_data(
    house: House, tenant: Tenant
) -> None:
    blue = team(house, tenant)
    mover = in_team(house, tenant, blue, "admin")
    house.instance(tenant)
    with_role(house, tenant, mover, "projects:read", "projects:write", name="moves projects")
    project = f"{tenant.path}/projects/{tenant.project_id}"
    body = {"team_id": blue.rpartition("/")[2]}
    refused = house.request("PATCH", project, mover.session, json=body)
    is_problem(refused, 403, "role_exceeds_yours")
    assert "console:open" in refused.json()["detail"]
    developer = house.member(tenant.org_id, "developer")
    assert put(house, blue, tenant.key, developer, "admin").status_code == 200
    assert house.request("PATCH", project, developer.session, json=body).status_code == 200


def test_no_letter_goes_to_the_address_of_a_service_account(house: House, tenant: Tenant) -> None:
    made = account(house, tenant, tenant.key, "deploys", "member")
    email = f"{made['id'].lower()}@service-accounts.invalid"
    before = len(house.letters.sent)
    assert house.post("/v1/password-resets", json={"email": email}).status_code in (202, 422)
    house.settle()
    assert len(house.letters.sent) == before
    assert house.post("/v1/sessions", json={"email": email, "password": PASSWORD}).is_client_error


def test_role_sets_of_no_known_scope_change_nothing(house: House, tenant: Tenant) -> None:
    """As a later version may have left them."""
    house.change_org(tenant.org_id, role_sets={"project:viewer": ["instances:read"], "x": []})
    assert "org:close" in mine(house, tenant, tenant.key)["in_org"]


def test_programs_are_not_counted_among_people_without_a_second_factor(
    house: House, tenant: Tenant
) -> None:
    before = house.get(f"{tenant.path}/compliance", tenant.key).json()["mfa"]
    account(house, tenant, tenant.key, "deploys", "member")
    assert house.get(f"{tenant.path}/compliance", tenant.key).json()["mfa"] == before
