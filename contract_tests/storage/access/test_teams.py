"""Teams as they are kept: who is in them, what belongs to them, and no other organization's."""

import pytest

from contract_tests.storage import tenants
from contract_tests.storage.tenants import roles_in_teams
from storage.access import memberships, projects, team_members, teams, users
from storage.access.scopes import RecordPlace
from storage.access.teams import Team, TeamMember
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict
from storage.events import alerts
from storage.events.alerts import Alert
from storage.instances import of_teams
from storage.instances.instances import Instance


def test_a_team_is_of_its_organization(database: Database) -> None:
    with database.write() as db:
        org_id, other = tenants.make(db).org_id, tenants.make(db).org_id
        blue = teams.create(db, org_id, {"name": "Blue", "slug": "blue", "cost_centre": "1"})
        assert (blue.org_id, blue.cost_centre, blue.monthly_budget_cents) == (org_id, "1", None)
        assert blue.id.startswith("team_")
        assert (blue.place, blue.is_default) == (RecordPlace(blue.id), False)
        assert teams.fetch(db, org_id, blue.id) is blue
        assert teams.fetch(db, org_id, teams.everyone_of(org_id)).is_default
        for where, wanted in ((other, blue.id), (org_id, teams.everyone_of(other)), (org_id, "x")):
            with pytest.raises(RecordNotFound, match=r"^team not found$"):
                teams.fetch(db, where, wanted)
        assert (teams.count(db, org_id), teams.count(db, other)) == (2, 1)
        assert teams.is_slug_taken(db, org_id, "blue")
        assert not teams.is_slug_taken(db, other, "blue")
        assert not teams.is_slug_taken(db, org_id, "red")
        first = teams.page(db, org_id, limit=1, after=None)
        assert (first.items, first.next_after) == ([blue], blue.id)
        rest = teams.page(db, org_id, limit=1, after=blue.id)
        assert ([one.name for one in rest.items], rest.next_after) == (["Everyone"], None)


def test_everyone_keeps_its_name_and_its_slug(database: Database) -> None:
    with database.write() as db:
        org_id = tenants.make(db).org_id
        everyone = teams.fetch(db, org_id, teams.everyone_of(org_id))
        everyone.change({"name": "Everyone", "slug": "everyone", "monthly_budget_cents": 2**40})
        for values in ({"name": "X"}, {"slug": "x"}, {"slug": "everyone", "name": "X"}):
            with pytest.raises(StateConflict, match=r"^cannot change the name or the slug of "):
                everyone.change(values)
        with pytest.raises(StateConflict, match=r"^cannot delete the default team Everyone: "):
            everyone.refuse_default()
        blue = teams.create(db, org_id, {"name": "Blue", "slug": "blue"})
        blue.refuse_default()
        blue.change({"name": "X", "slug": "x"})
    with database.read() as db:
        assert db.get_one(Team, everyone.id).monthly_budget_cents == 2**40
        assert (db.get_one(Team, blue.id).name, db.get_one(Team, blue.id).slug) == ("X", "x")


def test_who_is_in_a_team_is_a_member_of_its_organization(database: Database) -> None:
    with database.write() as db:
        org_id, other = tenants.make(db).org_id, tenants.make(db).org_id
        blue = teams.create(db, org_id, {"name": "Blue", "slug": "blue"})
        everyone = teams.fetch(db, org_id, teams.everyone_of(org_id))
        people = [users.create(db, email=f"{one}@example.org", name=one) for one in "abc"]
        made = [memberships.create(db, org_id, one.id, "member") for one in people[:2]]
        memberships.create(db, other, people[2].id, "member")
        assert memberships.fetch(db, org_id, people[0].id) is made[0]
        with pytest.raises(RecordNotFound, match=r"^member not found$"):
            memberships.fetch(db, org_id, people[2].id)

        def in_team(team: Team) -> list[tuple[str, str | None]]:
            found = team_members.page(db, team, limit=9, after=None).items
            counted = team_members.counts(db, org_id, [team.id])
            assert counted == {team.id: len(found)}
            return [(one.name, one.role) for one in found]

        assert (in_team(blue), in_team(everyone)) == ([], [("b", None), ("a", None)])
        for role in ("viewer", "admin"):
            team_members.put(db, blue, made[0], role)
            assert in_team(blue) == [("a", role)]
        assert team_members.fetch(db, blue, people[0].id).email == "a@example.org"
        with pytest.raises(RecordNotFound, match=r"^the user is not in the team$"):
            team_members.fetch(db, blue, people[1].id)
        team_members.remove(db, everyone, made[0])
        assert (in_team(blue), in_team(everyone)) == ([("a", "admin")], [("b", None)])
        assert (made[0].teams_only, made[1].teams_only) == (True, False)
        team_members.put(db, everyone, made[0], "viewer")
        assert in_team(everyone) == [("b", None), ("a", "viewer")]
        team_members.put(db, everyone, made[0], None)
        assert in_team(everyone) == [("b", None), ("a", None)]
        page = team_members.page(db, everyone, limit=1, after=None)
        assert ([one.name for one in page.items], page.next_after) == (["b"], people[1].id)
        page = team_members.page(db, everyone, limit=1, after=people[1].id)
        assert ([one.name for one in page.items], page.next_after) == (["a"], None)
        both = team_members.counts(db, org_id, [blue.id, everyone.id])
        assert both == {blue.id: 1, everyone.id: 2}
        team_members.remove(db, blue, made[0])
        assert (in_team(blue), made[0].teams_only) == ([], False)


def test_a_role_in_everyone_is_of_whoever_is_not_in_it_otherwise(database: Database) -> None:
    with database.write() as db:
        org_id = tenants.make(db).org_id
        everyone = teams.fetch(db, org_id, teams.everyone_of(org_id))
        ada = users.create(db, email="ada@example.org", name="Ada")
        member = memberships.create(db, org_id, ada.id, "member")
        team_members.put(db, everyone, member, "viewer")
        member.teams_only = True
        db.flush()
        assert team_members.counts(db, org_id, [everyone.id]) == {everyone.id: 1}
        assert team_members.fetch(db, everyone, ada.id).role == "viewer"
        team_members.remove(db, everyone, member)
        assert team_members.counts(db, org_id, [everyone.id]) == {everyone.id: 0}


def test_a_projects_instances_and_alerts_follow_it_and_no_others(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        org_id, everyone = tenant.org_id, teams.everyone_of(tenant.org_id)
        blue = teams.create(db, org_id, {"name": "Blue", "slug": "blue"})
        moving, staying = tenants.instance(db, tenant), tenants.instance(db, tenant)
        staying.project_id = projects.create(db, org_id, name="S", slug="s").id
        raised = [
            alerts.raise_(db, each, "kind", "info", title="t", reason="r")
            for each in (moving, staying)
        ]
        db.flush()
        of_teams.follow_project(db, org_id, tenant.project_id, blue.id)
        alerts.follow_project(db, org_id, tenant.project_id, blue.id)
    with database.write() as db:
        kept = [db.get_one(Instance, each.id).team_id for each in (moving, staying)]
        assert kept == [blue.id, everyone]
        assert [db.get_one(Alert, each.id).team_id for each in raised] == [blue.id, everyone]
        assert of_teams.count_by_status(db, org_id, blue.id) == {moving.status: 1}
        assert of_teams.count_by_status(db, org_id, everyone) == {staying.status: 1}
        for each in (moving, staying):
            db.get_one(Instance, each.id).status = "erased"
        db.flush()
        assert of_teams.count_by_status(db, org_id, blue.id) == {}
        of_teams.leave_team(db, org_id, blue.id)
    with database.read() as db:
        kept = [db.get_one(Instance, each.id).team_id for each in (moving, staying)]
        assert kept == [None, everyone]


def test_the_roles_in_a_team_go_with_it(database: Database) -> None:
    with database.write() as db:
        org_id = tenants.make(db).org_id
        blue, red = (teams.create(db, org_id, {"name": n, "slug": n}) for n in ("blue", "red"))
        ada = users.create(db, email="ada@example.org", name="Ada")
        member = memberships.create(db, org_id, ada.id, "member")
        for each in (blue, red):
            team_members.put(db, each, member, "viewer")
        teams.delete(db, blue)
        assert roles_in_teams(db, member) == {red.id: "viewer"}
        assert db.get(Team, blue.id) is None
        assert db.get(TeamMember, (red.id, ada.id)) is not None


def test_projects_are_counted_of_a_team_and_of_all(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        blue = teams.create(db, tenant.org_id, {"name": "Blue", "slug": "blue"})
        made = projects.create(db, tenant.org_id, name="B", slug="b", team_id=blue.id)
        assert made.team_id == blue.id
        everyone = teams.everyone_of(tenant.org_id)
        counted = [projects.count(db, tenant.org_id, team_id=one) for one in (blue.id, everyone)]
        assert (counted, projects.count(db, tenant.org_id)) == ([1, 1], 2)
