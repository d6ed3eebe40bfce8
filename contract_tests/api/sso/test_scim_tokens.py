"""SCIM tokens of an organization: shown once, bounded, and revoked at once."""

from contract_tests.api.harness import House
from contract_tests.api.sso.provider import Provider
from handlers import instants
from storage.sso import scim_tokens


def test_a_token_is_shown_once_and_good_until_it_is_revoked(house: House) -> None:
    provider = Provider(house)
    owner, path = provider.tenant.owner, f"/v1/orgs/{provider.org_id}/sso/scim-tokens"
    made = house.post(path, owner.session, json={"name": "Okta", "default_role": "developer"})
    assert made.status_code == 201, made.text
    token = made.json().pop("token")
    assert token.startswith("mscim_")
    with house.database.read() as db:
        kept = scim_tokens.fetch(db, provider.org_id, made.json()["id"])
        assert token not in (kept.token_hash, kept.prefix)
        assert token.startswith(kept.prefix)
    listed = house.get(path, provider.tenant.key).json()["items"]
    assert [one["name"] for one in listed] == ["Okta", "provider"]
    assert "token" not in listed[0]
    assert provider.ask("GET", "/Users", token=token).status_code == 200
    user = provider.ask("POST", "/Users", {"userName": provider.address("ada")}, token=token)
    assert provider.role(user.json()["id"]) == "developer"
    ended = house.request("DELETE", f"{path}/{made.json()['id']}", provider.tenant.key)
    assert ended.status_code == 204
    assert provider.ask("GET", "/Users", token=token).status_code == 401
    assert house.request("DELETE", f"{path}/{made.json()['id']}", owner.session).status_code == 404
    assert provider.role(user.json()["id"]) == "developer"


def test_a_token_expires(house: House) -> None:
    provider = Provider(house)
    owner, path = provider.tenant.owner, f"/v1/orgs/{provider.org_id}/sso/scim-tokens"
    for wrong in ("2001-01-01T00:00:00Z", "soon"):
        refused = house.post(path, owner.session, json={"name": "x", "expires_at": wrong})
        assert refused.status_code == 422
    with house.database.read() as db:
        now = house.database.now(db)
    soon = instants.timestamp(now.replace(year=now.year + 1))
    made = house.post(path, owner.session, json={"name": "x", "expires_at": soon}).json()
    assert provider.ask("GET", "/Users", token=made["token"]).status_code == 200
    house.pass_time(366 * 86_400)
    assert provider.ask("GET", "/Users", token=made["token"]).status_code == 401
    house.database.clock_offset *= 0


def test_an_organization_has_few_tokens_however_they_are_asked_for(house: House) -> None:
    provider = Provider(house)
    owner, path = provider.tenant.owner, f"/v1/orgs/{provider.org_id}/sso/scim-tokens"
    asked = ("POST", path, owner.session, {"json": {"name": "x"}})
    answers = house.together(*((*asked[:3], dict(asked[3])) for _ in range(10)))
    statuses = sorted(one.status_code for one in answers)
    assert statuses == [201] * 4 + [422] * 6
    refused = next(one for one in answers if one.status_code == 422)
    assert refused.json()["errors"][0]["keyword"] == "quota"


def test_it_takes_a_session_of_an_owner(house: House) -> None:
    provider = Provider(house)
    path = f"/v1/orgs/{provider.org_id}/sso/scim-tokens"
    refused = house.post(path, provider.tenant.key, json={"name": "x"})
    assert (refused.status_code, refused.json()["code"]) == (403, "session_required")
    for role in ("admin", "developer", "member", "auditor"):
        person = house.member(provider.org_id, role)
        refused = house.post(path, person.session, json={"name": "x"})
        code = "owner_required" if role == "admin" else "permission_missing"
        assert (refused.status_code, refused.json()["code"]) == (403, code)
    given = {"name": "x", "default_role": "owner"}
    assert house.post(path, provider.tenant.owner.session, json=given).status_code == 422
