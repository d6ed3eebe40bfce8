"""One name of a path at a time leads elsewhere: each is 404, and nothing has changed."""

from functools import cache
from typing import Any

import pytest
from sqlalchemy import Select, event, inspect, select

from contract_tests.api.harness import House
from contract_tests.api.rows import (
    OPERATIONS,
    Estate,
    body_of,
    domain,
    estate,
    is_problem,
    migrated,
    path_of,
    restored,
)
from contract_tests.by_day import one_in
from specserver import Operation
from storage.access import memberships
from storage.columns import Owned, Record

Ids = dict[str, str]


def records(operation: Operation) -> list[str]:
    """The path's parameters that name a record, in its order."""
    named = [one for one in operation.document["parameters"] if one["in"] == "path"]
    ours = [str(one["name"]) for one in named if one["x-record"] != "none"]
    return sorted(ours, key=operation.path.index)


NAMING = [one for one in OPERATIONS if set(records(one)) - {"org_id"}]


class Owners:
    """An owner of two organizations, of which the first has two instances."""

    def __init__(self, house: House) -> None:
        person = house.person(mfa=True)
        self.token = person.session
        mine, other = estate(house, "One"), estate(house, "Other")
        with house.database.write() as db:
            for each in (mine, other):
                memberships.create(db, each.tenant.org_id, person.id, "owner")
        sibling = house.instance(mine.tenant)
        self.mine = mine.ids
        of_sibling = domain(house, mine.tenant, sibling), *restored(house, mine.tenant, sibling)
        migration_id = migrated(house, mine.tenant, sibling)
        self.sibling = Estate(mine.tenant, sibling, *of_sibling, migration_id).ids
        stranger = house.person()
        session_id = house.get("/v1/me", stranger.session).json()["session_id"]
        self.other = {**other.ids, "session_id": session_id}
        self.org_ids = self.mine["org_id"], self.other["org_id"]
        self.before = everything(house, *self.org_ids)

    def elsewhere(self, operation: Operation) -> list[tuple[str, Ids]]:
        """What the path may name, of which one is another organization's or instance's."""
        names = records(operation)
        varied = [(name, self.other[name]) for name in names]
        if set(names) & {"domain_id", "backup_id", "restore_id", "migration_id"}:
            varied += [(name, self.sibling[name]) for name in names if name != "org_id"]
        return [(name, {**self.mine, name: value}) for name, value in varied]


@pytest.fixture(scope="module")
def owners(house: House) -> Owners:
    return Owners(house)


def send(house: House, operation: Operation, ids: Ids, token: str) -> Any:
    takes = {one["name"] for one in operation.document["parameters"]}
    headers = {"If-Match": "*"} if "If-Match" in takes else {}
    body = body_of(operation)
    options = {"headers": headers} | ({} if body is None else {"json": body})
    return house.request(operation.method, path_of(operation, ids), token, **options)


@cache
def rows_of(org_ids: tuple[str, ...]) -> dict[str, Select[Any]]:
    """All that these organizations have, but for when their keys were used last, by class."""
    rows = {}
    for mapper in Record.registry.mappers:
        if issubclass(mapper.class_, Owned):
            columns = [one for one in inspect(mapper.class_).columns if one.key[:5] != "last_"]
            rows[mapper.class_.__name__] = select(*columns).where(
                mapper.class_.owner_id().in_(org_ids)
            )
    return rows


def everything(house: House, *org_ids: str) -> dict[str, list[tuple[Any, ...]]]:
    with house.database.read() as db:
        return {
            name: sorted(map(tuple, db.execute(rows)), key=repr)
            for name, rows in rows_of(org_ids).items()
        }


@pytest.mark.parametrize("operation", NAMING, ids=lambda one: one.id)
def test_each_name_of_a_path_is_of_what_stands_before_it(
    house: House, owners: Owners, operation: Operation
) -> None:
    varied = owners.elsewhere(operation)
    assert varied
    for name, ids in varied:
        answer = send(house, operation, ids, owners.token)
        assert answer.status_code == 404, (name, path_of(operation, ids), answer.text)
        is_problem(answer, 404, "not_found")
    before, owners.before = owners.before, everything(house, *owners.org_ids)
    assert owners.before == before


READING = [one for one in NAMING if one.method == "GET"]


@pytest.mark.parametrize("operation", one_in(2, READING), ids=lambda one: one.id)
def test_the_same_path_leads_somewhere_when_all_names_agree(
    house: House, owners: Owners, operation: Operation
) -> None:
    """Or the test above could not fail."""
    assert send(house, operation, owners.mine, owners.token).status_code != 404


HELD = {
    "projects.update": {"projects"},
    "teams.update": {"teams"},
    "team_members.set": {"memberships"},
    "instances.pause": {"instances"},
    "network.replace": {"instances"},
    "domains.create": {"instances"},
    "domains.verify": {"domains"},
    "domains.delete": {"instances", "domains"},
    "backups.delete": {"instances", "backups"},
    "backups.restore": {"instances", "backups"},
    "migrations.create": {"instances"},
    "credentials.reveal": set(),
}


@pytest.mark.parametrize("house", ["postgresql"], indirect=True)
@pytest.mark.parametrize("name", HELD)
def test_a_change_holds_what_it_is_about(house: House, name: str) -> None:
    made = estate(house)
    token = house.session(made.tenant.owner.id, mfa=True)
    operation = next(one for one in OPERATIONS if one.id == name)
    said: list[str] = []

    def listen(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        said.append(statement)

    event.listen(house.database.engine, "before_cursor_execute", listen)
    try:
        assert send(house, operation, made.ids, token).is_success
    finally:
        event.remove(house.database.engine, "before_cursor_execute", listen)
    held = {one.partition("FROM ")[2].split()[0] for one in said if one.endswith("FOR UPDATE")}
    # Work that waits already is held too, so that no worker begins it meanwhile.
    assert held - {"work"} == HELD[name]
