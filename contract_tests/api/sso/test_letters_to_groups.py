"""Who leads by a group of an identity provider alone gets the same letters as who does by hand."""

from contract_tests.api.harness import House
from contract_tests.api.instances.approval_helpers import asked, site
from contract_tests.api.sso.provider import Provider
from contract_tests.workflows.known import take_turn
from control.events import raise_
from storage.access.teams import Team


def test_a_lead_by_a_group_is_asked_to_decide_and_told_of_alerts(house: House) -> None:
    at = site(house)
    provider = Provider(house, at.tenant)
    people = {login: provider.user(login)["id"] for login in ("lead", "admin", "nobody")}
    org, path = at.tenant.path, "/sso/scim-groups/"
    for login, gives in (
        ("lead", {"team": {"team_id": at.team_id, "role": "admin"}}),
        ("admin", {"org_role": "admin"}),
        ("nobody", {"team": {"team_id": at.team_id, "role": "viewer"}}),
    ):
        group_id = provider.group(login, people[login])["id"]
        changed = house.request("PATCH", f"{org}{path}{group_id}", at.tenant.key, json=gives)
        assert changed.status_code == 200, changed.text

    asked(house, at, name="sales")
    assert written_to(provider) == {"lead", "admin"}
    with house.database.write() as db:
        team = db.get_one(Team, at.team_id)
        raise_(db, team, "budget_threshold", "critical", "{name}: all of it", "it was spent")
        take_turn(db, "alerts.mail")
    assert written_to(provider) == {"lead", "admin"}
    with house.database.write() as db:
        raise_(db, db.get_one(Team, at.team_id), "instances_unreachable", "critical", "x", "y")
    for login in ("lead", "admin"):
        user = f"/Users/{people[login]}"
        provider.patch(user, {"op": "replace", "value": {"active": False}})
    house.pass_time(3_600)
    with house.database.write() as db:
        take_turn(db, "alerts.mail")
    assert written_to(provider) == set()


def written_to(provider: Provider) -> set[str]:
    """Of the provider's people, those who got a letter since the last look."""
    house = provider.house
    house.settle()
    found = {letter.to for letter in house.letters.sent.values()}
    house.letters.sent.clear()
    return {each.partition("@")[0] for each in found if each.endswith(f"@{provider.domain}")}
