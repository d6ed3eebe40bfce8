"""Which teams are looked at: those with a budget, and those whose alert may be over."""

from contract_tests.storage import tenants
from contract_tests.storage.query_plans import query_plans
from storage.access import budgets, teams
from storage.access.teams import Team
from storage.database import Database
from storage.events import alerts

BUDGETS = {"Budget": 5, "Nothing": 0, "Without": None, "Alerted": None}


def test_who_is_looked_at_page_by_page(database: Database) -> None:
    with database.write() as db:
        tenant, other = tenants.make(db), tenants.make(db)
        made = {}
        for org_id in (tenant.org_id, other.org_id):
            for name, cents in BUDGETS.items():
                values = {"name": name, "slug": name.lower(), "monthly_budget_cents": cents}
                made[org_id, name] = teams.create(db, org_id, values)
        alerted = [team for (_, name), team in made.items() if name == "Alerted"]
        for team in (*alerted, made[tenant.org_id, "Budget"]):
            alerts.raise_(db, team, budgets.THRESHOLD, "info", title="t", reason="r")
        instance = tenants.instance(db, tenant, team_id=made[tenant.org_id, "Without"].id)
        alerts.raise_(db, instance, budgets.THRESHOLD, "info", title="t", reason="r")
        alerts.raise_(db, made[tenant.org_id, "Without"], "other", "info", title="t", reason="r")
        alerts.resolve(db, alerted[1], [budgets.THRESHOLD])
        db.flush()
        expected = {
            made[tenant.org_id, "Budget"].id: True,
            made[tenant.org_id, "Nothing"].id: False,
            made[tenant.org_id, "Alerted"].id: True,
            made[other.org_id, "Budget"].id: False,
            made[other.org_id, "Nothing"].id: False,
        }
        found, after = [], ""
        while page := budgets.watched(db, limit=2, after=after):
            found += page
            after = page[-1].team.id
        assert [(each.team.id, each.is_alerted) for each in found] == sorted(expected.items())


def test_alerts_of_teams_are_found_by_an_index(database: Database) -> None:
    with database.write() as db:
        tenants.make(db)
    with database.read() as db, query_plans(db) as plans:
        budgets.watched(db, limit=200, after="")
        assert not [plan for plan in plans if "alerts" in plan and "of_teams" not in plan], plans


def test_what_was_told_is_of_the_month_and_goes_with_the_team(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        one, two = (
            teams.create(db, tenant.org_id, {"name": name, "slug": name}) for name in ("one", "two")
        )
        for team, month, percent in (
            (one, "2026-11", 50),
            (one, "2026-11", 80),
            (one, "2026-12", 50),
            (two, "2026-11", 100),
        ):
            budgets.note(db, team, month, percent)
        asked = [one.id, two.id]
        assert budgets.told(db, asked, "2026-11") == {one.id: {50, 80}, two.id: {100}}
        assert budgets.told(db, asked, "2026-12") == {one.id: {50}, two.id: set()}
        assert budgets.told(db, [two.id], "2026-11") == {two.id: {100}}
        budgets.forget(db, one)
        assert budgets.told(db, asked, "2026-11") == {one.id: set(), two.id: {100}}
        teams.delete(db, one)
        assert db.get(Team, one.id) is None
