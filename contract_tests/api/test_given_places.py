"""What is given for a team or a project reaches its records, and none of another's."""

from dataclasses import dataclass

import pytest

from contract_tests.api.access.team_helpers import outsider, team
from contract_tests.api.callers import (
    BY_PERMISSION,
    IN_TEAMS,
    ask,
    is_for_people,
    is_let_in,
    lacks,
    permission_of,
)
from contract_tests.api.harness import House, Person
from contract_tests.api.roles.role_helpers import assign, role
from contract_tests.api.rows import Estate, estate, is_problem, nested, send
from control.policy.permissions import PROJECT_ROLES, ROLES, TEAM
from specserver import Operation
from storage.access import memberships

OF_RECORDS = [one for one in IN_TEAMS if nested(one)]
OF_ORG_ALONE = {held: found for held, found in BY_PERMISSION.items() if held not in TEAM}
IN_PROJECTS = [
    one for one in OF_RECORDS if {"{project_id}", "{instance_id}"} & set(one.path.split("/"))
]
READING = [one for one in IN_PROJECTS if one.method == "GET"]
ELSE = {"queues.list": 409}
"""What is answered to whoever may, where it is not 200: an instance of duckdb has no queues."""
every = pytest.mark.parametrize


@dataclass(frozen=True)
class Newcomers:
    """People who hold nothing of what teams have but what they were given, in one place each.

    By the role in the project of the estate, or in another one: `(role, "here")`. Programs have
    service accounts with the role developer, and their keys.
    """

    place: Estate
    people: dict[tuple[str, str], Person]
    programs: dict[str, str]
    of_team: Person
    """With all that teams have, in a team that nothing of the estate belongs to."""


@pytest.fixture(scope="module")
def newcomers(house: House) -> Newcomers:
    place = estate(house, "Places")
    tenant = place.tenant
    other = house.post(f"{tenant.path}/projects", tenant.key, json={"name": "Other"}).json()["id"]
    people, programs = {}, {}
    for given in PROJECT_ROLES:
        for where, project in (("here", tenant.project_id), ("elsewhere", other)):
            person = people[given, where] = _verified(house, outsider(house, tenant))
            _put(house, place, project, person.id, given)
        made = house.post(
            f"{tenant.path}/service-accounts", tenant.key, json={"name": given, "role": "developer"}
        ).json()
        with house.database.write() as db:
            memberships.fetch(db, tenant.org_id, made["id"]).teams_only = True
        _put(house, place, tenant.project_id, made["id"], given)
        programs[given] = made["api_key"]["key"]
    of_team = _verified(house, outsider(house, tenant))
    path = role(house, tenant, *sorted(TEAM), name="all that teams have")
    blue = team(house, tenant).rpartition("/")[2]
    assert assign(house, path, tenant.key, of_team.id, blue).status_code == 201
    return Newcomers(place, people, programs, of_team)


def _verified(house: House, person: Person) -> Person:
    return Person(person.id, person.email, house.session(person.id, mfa=True))


def _put(house: House, place: Estate, project: str, user_id: str, given: str) -> None:
    path = f"{place.tenant.path}/projects/{project}/members/{user_id}"
    answer = house.request("PUT", path, place.tenant.key, json={"role": given})
    assert answer.status_code == 200, answer.text


@every("operation", IN_TEAMS, ids=lambda one: one.id)
def test_a_role_in_a_project_lets_do_what_it_holds(
    house: House, newcomers: Newcomers, operation: Operation
) -> None:
    tenant, permission = newcomers.place.tenant, permission_of(operation)
    for given, held in PROJECT_ROLES.items():
        answer = ask(house, operation, tenant, newcomers.people[given, "here"].session)
        by_program = ask(house, operation, tenant, newcomers.programs[given])
        if permission in held:
            assert is_let_in(answer), answer.text
        else:
            lacks(answer, permission)
        # A key of a service account inherits what the account has.
        allowed = permission in held and not is_for_people(operation)
        assert is_let_in(by_program) is allowed, (given, by_program.text)


@every("permission", sorted(OF_ORG_ALONE))
def test_nothing_of_the_organization_is_held_by_a_role_in_a_project_or_a_team(
    house: House, newcomers: Newcomers, permission: str
) -> None:
    tenant = newcomers.place.tenant
    for operation in OF_ORG_ALONE[permission]:
        for person in (newcomers.people["admin", "here"], newcomers.of_team):
            answer = ask(house, operation, tenant, person.session)
            if permission in ROLES["member"]:
                assert is_let_in(answer), answer.text
            else:
                lacks(answer, permission)


@every("operation", READING, ids=lambda one: one.id)
def test_a_role_in_a_project_reads_what_is_in_it(
    house: House, newcomers: Newcomers, operation: Operation
) -> None:
    place, permission = newcomers.place, permission_of(operation)
    expected = send(house, operation, place.ids, place.tenant.key).status_code
    assert expected == ELSE.get(operation.id, 200)
    for given, held in PROJECT_ROLES.items():
        for token in (newcomers.people[given, "here"].session, newcomers.programs[given]):
            answer = send(house, operation, place.ids, token)
            if permission in held:
                assert answer.status_code == expected, (given, answer.text)
            else:
                lacks(answer, permission)


@every("operation", OF_RECORDS, ids=lambda one: one.id)
def test_what_is_elsewhere_is_not_there_for_whoever_has_every_right_in_another_place(
    house: House, newcomers: Newcomers, operation: Operation
) -> None:
    """Of real records: what would be done to them is refused, so nothing happens."""
    place = newcomers.place
    for person in (newcomers.people["admin", "elsewhere"], newcomers.of_team):
        answer = send(house, operation, place.ids, person.session)
        if is_let_in(answer):
            is_problem(answer, 404, "not_found")
        else:
            lacks(answer, permission_of(operation))
