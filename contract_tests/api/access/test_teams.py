"""Teams: who has a role in one sees and touches its instances, and those of no other."""

from typing import Any

import pytest

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.rows import (
    NOBODY,
    OPERATIONS,
    Estate,
    alerted,
    domain,
    is_problem,
    migrating,
    path_of,
    restored,
    send,
)
from contract_tests.api.test_paths import records
from control.policy.permissions import TEAM_ROLES
from specserver import Operation
from storage import identifiers
from storage.access import memberships, projects, teams
from storage.access.teams import Team, TeamMember

Ids = dict[str, str]

OF_TEAMS = [
    one
    for one in OPERATIONS
    if one.extension("authorize").get("scope") == "team"
    and {"project_id", "instance_id"} & set(records(one))
]
LISTS = {
    "instances.list": "instance_id",
    "instances.list_in_project": "instance_id",
    "branches.list": "branch_id",
    "migrations.list": "migration_id",
    "projects.list": "project_id",
    "project_roles.list": "project_id",
    "alerts.list": "alert_id",
}
"""And which of a team's ids each shows."""


class Company:
    """An organization with three teams, of which each has a project with an instance."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.members: dict[str, Person] = {}
        self.tenant = house.tenant()
        everyone = teams.everyone_of(self.tenant.org_id)
        self.teams = {"everyone": everyone, "blue": self._team("Blue"), "red": self._team("Red")}
        self.ids = {name: self._ids(team_id) for name, team_id in self.teams.items()}

    def _team(self, name: str) -> str:
        team_id = identifiers.new("team_")
        with self.house.database.write() as db:
            made = Team(id=team_id, org_id=self.tenant.org_id, name=name, slug=name.lower())
            db.add(made)
        return team_id

    def _ids(self, team_id: str) -> Ids:
        house, org_id = self.house, self.tenant.org_id
        with house.database.write() as db:
            slug = team_id.rpartition("_")[2].lower()
            made = projects.create(db, org_id, name="Project", slug=slug)
            made.team_id = team_id
        tenant = Tenant(org_id, self.tenant.owner, self.tenant.key, self.tenant.key_id, made.id)
        instance_id = house.instance(tenant)
        path = f"{tenant.path}/instances/{instance_id}"
        branch = house.post(f"{path}/branches", tenant.key, json={"name": "branch"})
        made_of_it = domain(house, tenant, instance_id), *restored(house, tenant, instance_id)
        migration_id, alert_id = migrating(house, tenant, instance_id), alerted(house, instance_id)
        # Of whom one may lose the role by what is tried.
        user_id, other = (self.person(role="auditor").id for _ in range(2))
        for each in (user_id, other):
            in_project = f"{tenant.path}/projects/{made.id}/members/{each}"
            assert house.request("PUT", in_project, tenant.key, json={"role": "viewer"}).is_success
        ids = *made_of_it, migration_id, alert_id, user_id
        estate = Estate(tenant, instance_id, *ids)
        return {**estate.ids, "branch_id": branch.json()["id"]}

    def person(self, *, role: str = "member", teams_only: bool = True, **roles: str) -> Person:
        """Somebody new with these roles in teams."""
        person = self.house.person(mfa=True)
        with self.house.database.write() as db:
            made = memberships.create(db, self.tenant.org_id, person.id, role)
            made.teams_only = teams_only
        for team, team_role in roles.items():
            self.set_role(person, team, team_role)
        return person

    def member(self, **options: Any) -> str:
        """The session of somebody like that, who may have called before."""
        known = repr(sorted(options.items()))
        if known not in self.members:
            self.members[known] = self.person(**options)
        return self.members[known].session

    def set_role(self, person: Person, team: str, role: str | None) -> None:
        """None takes them out of the team."""
        team_id = self.teams[team]
        with self.house.database.write() as db:
            found = db.get(TeamMember, (team_id, person.id))
            if found is not None:
                db.delete(found)
                db.flush()
            if role is not None:
                ids = {"team_id": team_id, "user_id": person.id, "org_id": self.tenant.org_id}
                db.add(TeamMember(**ids, role=role))

    def sees(self, token: str) -> set[str]:
        """The teams whose instance can be got."""
        return {
            name
            for name, ids in self.ids.items()
            if self.house.get(
                f"{self.tenant.path}/instances/{ids['instance_id']}", token
            ).is_success
        }


@pytest.fixture(scope="module")
def company(house: House) -> Company:
    return Company(house)


def sent_in_vain(house: House, operation: Operation, ids: Ids, token: str) -> Any:
    """Without a body and on a condition that does not hold, so that little happens."""
    takes = {one["name"] for one in operation.document["parameters"]}
    options: dict[str, Any] = {"headers": {"If-Match": '"never"'}} if "If-Match" in takes else {}
    if "requestBody" in operation.document:
        options["json"] = {}
    return house.request(operation.method, path_of(operation, ids), token, **options)


@pytest.mark.parametrize("operation", OF_TEAMS, ids=lambda one: one.id)
def test_another_teams_records_are_404_as_those_that_never_were(
    house: House, company: Company, operation: Operation
) -> None:
    token = company.member(role="developer", blue="admin")
    absent = send(house, operation, {**NOBODY, "org_id": company.tenant.org_id}, token)
    for team in ("red", "everyone"):
        answer = send(house, operation, company.ids[team], token)
        is_problem(answer, 404, "not_found")
        assert _without_request(answer.json()) == _without_request(absent.json())


@pytest.mark.parametrize("operation", OF_TEAMS, ids=lambda one: one.id)
def test_in_ones_own_team_one_may_what_the_role_there_holds(
    house: House, company: Company, operation: Operation
) -> None:
    permission = operation.extension("authorize")["permission"]
    for team_role, held in TEAM_ROLES.items():
        token = company.member(blue=team_role)
        answer = sent_in_vain(house, operation, company.ids["blue"], token)
        if permission not in held:
            is_problem(answer, 403, "permission_missing")
        elif operation.id not in DELETED_BY_NOW:
            assert answer.status_code not in (401, 403, 404), answer.text


DELETED_BY_NOW = {"domains.delete", "domains.verify"}
"""Of what somebody with another role may have deleted before."""
SEERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "owner": ({"role": "owner", "teams_only": False}, {"everyone", "blue", "red"}),
    "admin": ({"role": "admin"}, {"everyone", "blue", "red"}),
    "auditor": ({"role": "auditor"}, {"everyone", "blue", "red"}),
    "member": ({"teams_only": False}, {"everyone"}),
    "developer": ({"role": "developer", "teams_only": False}, {"everyone"}),
    "member in a team too": ({"teams_only": False, "blue": "viewer"}, {"everyone", "blue"}),
    "member of one team": ({"blue": "viewer"}, {"blue"}),
    "member of two teams": ({"blue": "operator", "red": "viewer"}, {"blue", "red"}),
    "member of none": ({}, set()),
}


@pytest.mark.parametrize("name", SEERS)
def test_what_is_got_and_what_lists_show_is_of_ones_own_teams(
    house: House, company: Company, name: str
) -> None:
    options, expected = SEERS[name]
    token = company.member(**options)
    if not expected:
        is_problem(house.get(f"{company.tenant.path}/instances", token), 403, "permission_missing")
        return
    assert company.sees(token) == expected
    for operation in OPERATIONS:
        if operation.id not in LISTS:
            continue
        shown = LISTS[operation.id]
        lists = [send(house, operation, ids, token) for ids in company.ids.values()]
        found = {
            one.get("id", one.get(shown))
            for each in lists
            if each.is_success
            for one in each.json()["items"]
        }
        for team, ids in company.ids.items():
            assert (ids[shown] in found) == (team in expected), (operation.id, team)


def test_every_list_of_teams_records_is_among_them() -> None:
    """One more is to be looked at here too."""
    listing = {
        one.id
        for one in OPERATIONS
        if one.extension("authorize").get("scope") == "team"
        and one.method == "GET"
        and ({"project_id", "instance_id"} & set(records(one))) <= {"project_id"}
    }
    # What streams of events show is held to teams in test_events.py.
    # Of figures of backups in test_backups.py.
    # Of what a team spends in test_budgets.py.
    # And of figures of instances in test_metrics.py.
    others = {"orgs.ca", "projects.get", "events.follow", "backups.health", "budgets.get"}
    others.add("metrics.scrape")
    # Of what everybody uses, and what that costs, in contract_tests/api/billing.
    others |= {"usage.list", "cost_report.get"}
    # Of a project, which is not there for those who do not see it.
    others.add("project_members.list")
    assert listing == {*LISTS} - {"branches.list", "project_roles.list"} | others


def test_a_key_is_in_the_teams_of_its_owner(house: House, company: Company) -> None:
    org_id = company.tenant.org_id
    narrow, _ = house.key(org_id, company.tenant.owner, "member")
    assert company.sees(narrow) == {"everyone", "blue", "red"}
    member = company.person(blue="operator")
    key, _ = house.key(org_id, member, "member")
    assert company.sees(key) == {"blue"}
    scoped, _ = house.key(org_id, member, "member", scopes=["instances:write"])
    path = f"{company.tenant.path}/instances/{{}}/actions/resume"
    theirs, own = (path.format(company.ids[team]["instance_id"]) for team in ("red", "blue"))
    is_problem(house.post(theirs, scoped), 404)
    assert house.post(own, scoped).status_code == 409


def test_who_is_not_in_everyone_makes_no_project_for_it(house: House, company: Company) -> None:
    path, body = f"{company.tenant.path}/projects", {"name": "Another"}
    token = company.member(role="developer", blue="admin")
    is_problem(house.post(path, token, json=body), 403, "permission_missing")
    token = company.member(role="developer", teams_only=False)
    made = house.post(path, token, json=body)
    assert made.status_code == 201
    assert house.get(f"{path}/{made.json()['id']}", token).is_success


def test_a_stored_response_is_for_who_still_has_the_right(house: House, company: Company) -> None:
    member = company.person(blue="operator")
    path = f"{company.tenant.path}/instances/{company.ids['blue']['instance_id']}/branches"
    once = {"headers": {"Idempotency-Key": "once"}, "json": {"name": "once"}}
    first = house.post(path, member.session, **once)
    again = house.post(path, member.session, **once)
    assert (first.status_code, again.json()) == (201, first.json())
    company.set_role(member, "blue", "viewer")
    is_problem(house.post(path, member.session, **once), 403, "permission_missing")
    company.set_role(member, "blue", None)
    company.set_role(member, "red", "operator")
    is_problem(house.post(path, member.session, **once), 404)


def test_roles_in_teams_end_with_the_membership(house: House, company: Company) -> None:
    member = company.person(blue="operator")
    assert company.sees(member.session) == {"blue"}
    with house.database.write() as db:
        db.delete(memberships.find(db, company.tenant.org_id, member.id))
    assert company.sees(member.session) == set()
    with house.database.write() as db:
        memberships.create(db, company.tenant.org_id, member.id, "member")
    assert company.sees(member.session) == {"everyone"}


def _without_request(problem: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in problem.items() if name != "request_id"}
