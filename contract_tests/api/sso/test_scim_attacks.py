"""Whoever has a SCIM token, or none, gets nothing that is not theirs."""

import time
from typing import Any

import pytest

from contract_tests.api.harness import House
from contract_tests.api.sso.provider import ERROR, GROUP, PATCH, SEARCH, USER, Provider
from control.sso.scim import groups
from storage.access import memberships
from storage.sso import scim_tokens


@pytest.fixture
def provider(house: House) -> Provider:
    return Provider(house)


def is_error(answer: Any, status: int, scim_type: str | None = None) -> None:
    body = answer.json()
    assert (answer.status_code, body["schemas"]) == (status, [ERROR]), answer.text
    assert body["status"] == str(status)
    assert body.get("scimType") == scim_type, answer.text
    assert answer.headers["Content-Type"] == "application/scim+json"


PATHS = [
    ("GET", "/Users"),
    ("POST", "/Users"),
    ("POST", "/Users/.search"),
    ("GET", "/Users/usr_x"),
    ("PUT", "/Users/usr_x"),
    ("PATCH", "/Users/usr_x"),
    ("DELETE", "/Users/usr_x"),
    ("GET", "/Groups"),
    ("POST", "/Groups"),
    ("PATCH", "/Groups/x"),
    ("DELETE", "/Groups/x"),
    ("POST", "/.search"),
    ("GET", "/"),
    ("POST", "/Bulk"),
    ("GET", "/Me"),
    ("GET", "/Schemas"),
    ("GET", "/ServiceProviderConfig"),
    ("GET", "/ResourceTypes/User"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_nobody_comes_in_without_a_token_in_force(house: House, method: str, path: str) -> None:
    provider = Provider(house)
    revoked, revoked_id = provider.new_token()
    expired, expired_id = provider.new_token()
    with house.database.write() as db:
        now = house.database.now(db)
        scim_tokens.fetch(db, provider.org_id, revoked_id).revoked_at = now
        scim_tokens.fetch(db, provider.org_id, expired_id).expires_at = now
    body = {"schemas": [USER]} if method in ("POST", "PUT", "PATCH") else None
    for token in (
        *(None, "x", "mscim_" + "0" * 49, revoked, expired),
        *(provider.tenant.key, provider.tenant.owner.session),
    ):
        refused = provider.ask(method, path, body, token=token)
        is_error(refused, 401)
        assert refused.headers["WWW-Authenticate"] == 'Bearer realm="SCIM"'


def test_a_token_is_good_for_nothing_else(provider: Provider) -> None:
    for path in ("/v1/me", f"/v1/orgs/{provider.org_id}", f"/v1/orgs/{provider.org_id}/members"):
        assert provider.house.get(path, provider.token).status_code == 401


def test_what_is_of_another_organization_is_not_there(provider: Provider) -> None:
    other = Provider(provider.house)
    user, group = other.user("ada"), other.group("Data")
    mine = provider.group("Mine")
    for path in (f"/Users/{user['id']}", f"/Groups/{group['id']}"):
        body = {"schemas": [], "userName": "x", "displayName": "x"}
        for answer in (
            provider.ask("GET", path),
            provider.ask("PUT", path, body),
            provider.patch(path, {"op": "replace", "value": {"active": False}}),
            provider.ask("DELETE", path),
        ):
            is_error(answer, 404)
    add = {"op": "add", "path": "members", "value": [{"value": user["id"]}]}
    is_error(provider.patch(f"/Groups/{mine['id']}", add), 400, "invalidValue")
    for asked in (f'id eq "{user["id"]}"', f'userName eq "{user["userName"]}"', "userName pr"):
        assert provider.ask("GET", f"/Users?filter={asked}").json()["totalResults"] == 0
    assert provider.ask("GET", "/").json()["totalResults"] == 1
    assert other.role(user["id"]) == "member"
    bulk = {"Operations": [{"method": "DELETE", "path": f"/Users/{user['id']}"}]}
    assert provider.ask("POST", "/Bulk", bulk).json()["Operations"][0]["status"] == "404"


def test_members_that_are_the_servers_are_not_taken_from_a_body(provider: Provider) -> None:
    other = Provider(provider.house)
    ada = provider.user(
        "ada",
        id="usr_chosen",
        roles=[{"value": "owner"}],
        role="owner",
        org_id=other.org_id,
        groups=[{"value": provider.group("Admins")["id"]}],
        meta={"created": "2001-01-01T00:00:00Z", "version": 'W/"99"'},
        password="x" * 12,
        made_account=False,
    )
    assert ada["id"] != "usr_chosen"
    assert ada["meta"]["version"] == 'W/"1a"'
    assert not {"roles", "role", "org_id", "password", "groups"} & set(ada)
    assert provider.role(ada["id"]) == "member"
    path = f"/Users/{ada['id']}"
    for value in ({"groups": [{"value": "x"}]}, {"meta": {"version": "x"}}, {"id": "usr_x"}):
        changed = provider.patch(path, {"op": "replace", "value": value})
        assert changed.status_code in (200, 400), changed.text
    for field in ("id", "meta.version", "groups"):
        is_error(
            provider.patch(path, {"op": "replace", "path": field, "value": "x"}), 400, "mutability"
        )
    found = provider.ask("GET", path).json()
    assert (found["id"], found.get("groups")) == (ada["id"], None)
    with provider.house.database.read() as db:
        assert memberships.find(db, other.org_id, ada["id"]) is None


INJECTED = [
    'userName eq "x" or userName pr',
    "userName eq \"' OR '1'='1\"",
    'userName eq "x\\" or id pr or \\""',
    'externalId eq "\'; DROP TABLE users; --"',
    'displayName co "%"',
    'userName sw "_"',
]


@pytest.mark.parametrize("asked", INJECTED)
def test_a_filter_says_what_it_says_and_nothing_else(provider: Provider, asked: str) -> None:
    provider.user("ada")
    expected = 1 if asked.endswith("userName pr") else 0
    body = {"schemas": [SEARCH], "filter": asked}
    found = provider.ask("POST", "/Users/.search", body)
    assert (found.status_code, found.json()["totalResults"]) == (200, expected), found.text


BROKEN = [
    "userName",
    "userName eq",
    'userName xx "a"',
    'userName eq "a',
    "(userName pr",
    'emails[type eq "work"',
    "active gt true",
    "userName eq \u0000",
    'nosuch eq "x"',
]


@pytest.mark.parametrize("asked", BROKEN)
def test_a_broken_filter_is_refused(provider: Provider, asked: str) -> None:
    answer = provider.ask("POST", "/Users/.search", {"schemas": [SEARCH], "filter": asked})
    assert answer.status_code == 400, answer.text
    assert answer.json()["scimType"] in ("invalidFilter", "invalidValue")


def nested(depth: int) -> str:
    return "not " * 0 + "(" * depth + "userName pr" + ")" * depth


def test_what_is_asked_is_in_bounds(provider: Provider) -> None:
    ada = provider.user("ada")["id"]
    group = provider.group("g")["id"]
    long = " or ".join(['userName eq "x"'] * 200)
    for asked in (nested(200), long, "emails[" * 100):
        body = {"schemas": [SEARCH], "filter": asked}
        is_error(provider.ask("POST", "/Users/.search", body), 400, "invalidFilter")
        assert provider.ask("GET", "/Users", params={"filter": asked}).status_code == 400
        change = {"op": "replace", "path": asked, "value": "x"}
        assert provider.patch(f"/Users/{ada}", change).status_code == 400
        bulk = {
            "Operations": [
                {"method": "PATCH", "path": f"/Users/{ada}", "data": {"Operations": [change]}}
            ]
        }
        assert provider.ask("POST", "/Bulk", bulk).status_code == 400
    many = [{"op": "replace", "path": "displayName", "value": str(n)} for n in range(201)]
    is_error(provider.patch(f"/Users/{ada}", *many), 400, "invalidValue")
    deletes = [{"method": "DELETE", "path": "/Users/x"}] * 101
    is_error(provider.ask("POST", "/Bulk", {"Operations": deletes}), 413)
    value = [{"value": f"usr_{n}"} for n in range(groups.MEMBERS_MAX + 1)]
    crowd = {"displayName": "g", "members": value}
    is_error(provider.ask("PUT", f"/Groups/{group}", crowd), 400, "invalidValue")
    is_error(provider.ask("POST", "/Users", {"userName": "x" * 70_000}), 413)
    for wrong in ("x" * 256, "a\nb", "\u0000"):
        refused = provider.ask("POST", "/Users", {"userName": wrong})
        assert refused.status_code == 400, wrong


def test_deep_and_malformed_bodies_are_refused(provider: Provider) -> None:
    house, kind = provider.house, {"Content-Type": "application/scim+json"}
    deep = "[" * 5_000 + "]" * 5_000
    for content in ("{", "[]", '"x"', deep, '{"a":' * 300 + "1" + "}" * 300, '{"a":1,"a":2}'):
        answer = house.post("/scim/v2/Users", provider.token, content=content, headers=kind)
        assert (answer.status_code, answer.json()["schemas"]) == (400, [ERROR]), content[:20]
    answer = house.post(
        "/scim/v2/Users", provider.token, content="<a/>", headers={"Content-Type": "text/xml"}
    )
    is_error(answer, 415)
    is_error(house.request("POST", "/scim/v2/Nope", provider.token, json={}), 404)
    is_error(house.request("DELETE", "/scim/v2/Users", provider.token), 405)
    for path in ("/Users?nosuch=1", "/Users?count=x", "/Users?sortBy=nosuch"):
        assert provider.ask("GET", path).status_code == 400, path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ada", "ADA"),
        ("stra\u00dfe", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
        ("\uff41\uff44\uff41", "ada"),
        ("\u01c6", "\u01c4"),
        ("\u0130x", "i\u0307x"),
    ],
)
def test_names_that_look_alike_are_the_same(provider: Provider, one: str, other: str) -> None:
    emails = [[{"value": provider.address(login)}] for login in ("a", "b")]
    made = provider.ask("POST", "/Users", {"userName": one, "emails": emails[0]})
    assert made.status_code == 201, made.text
    again = provider.ask("POST", "/Users", {"userName": other, "emails": emails[1]})
    is_error(again, 409, "uniqueness")
    found = provider.ask("GET", "/Users", params={"filter": f'userName eq "{other}"'}).json()
    assert [each["userName"] for each in found["Resources"]] == [one]
    provider.group(one)
    is_error(
        provider.ask("POST", "/Groups", {"schemas": [GROUP], "displayName": other}),
        409,
        "uniqueness",
    )


def test_the_same_person_pushed_at_once_comes_once(house: House) -> None:
    provider = Provider(house)
    body = {"schemas": [USER], "userName": provider.address("ada")}
    push = ("POST", "/scim/v2/Users", provider.token)
    answers = house.together(*((*push, {"json": body}) for _ in range(10)))
    assert sorted(each.status_code for each in answers) == [201] + [409] * 9
    assert provider.ask("GET", "/Users").json()["totalResults"] == 1


def test_secrets_are_not_told(provider: Provider) -> None:
    for path in ("/Users", "/ServiceProviderConfig"):
        assert provider.token not in provider.ask("GET", path).text
    path = f"/v1/orgs/{provider.org_id}/sso/scim-tokens"
    assert provider.token not in provider.house.get(path, provider.tenant.key).text


def test_a_failed_change_leaves_nothing(provider: Provider) -> None:
    ada = provider.user("ada")
    wrong = provider.patch(
        f"/Users/{ada['id']}",
        {"op": "replace", "path": "displayName", "value": "changed"},
        {"op": "replace", "path": "emails[nosuch", "value": "x"},
    )
    assert wrong.status_code == 400
    assert provider.ask("GET", f"/Users/{ada['id']}").json() == ada
    assert PATCH


def test_ten_thousand_users_are_read_in_pages(provider: Provider) -> None:
    """Quickly, and what would look at each of them is refused instead."""
    from storage.access import users  # noqa: PLC0415
    from storage.access.users import User  # noqa: PLC0415
    from storage.sso.scim_users import ScimUser, folded  # noqa: PLC0415

    with provider.house.database.write() as db:
        ids = [f"usr_{provider.domain[:6]}{number:06}" for number in range(10_000)]
        db.bulk_insert_mappings(
            User.__mapper__,
            [{"id": one, "email": f"{one}@{provider.domain}", "name": "n"} for one in ids],
        )
        db.bulk_insert_mappings(
            ScimUser.__mapper__,
            [
                {
                    "org_id": provider.org_id,
                    "user_id": one,
                    "user_name": one,
                    "user_name_key": folded(one),
                    "attributes": {},
                    "made_account": True,
                }
                for one in ids
            ],
        )
        assert users.is_anyone(db)
    began = time.monotonic()
    for start in (1, 5_001, 9_901):
        page = provider.ask("GET", f"/Users?startIndex={start}&count=200").json()
        assert page["totalResults"] == 10_000
        assert page["Resources"][0]["id"] == ids[start - 1]
    assert len(page["Resources"]) == 100
    found = provider.ask("GET", f'/Users?filter=userName eq "{ids[77].upper()}"').json()
    assert [one["id"] for one in found["Resources"]] == [ids[77]]
    is_error(provider.ask("GET", '/Users?filter=displayName co "x"'), 400, "tooMany")
    assert time.monotonic() - began < 60
