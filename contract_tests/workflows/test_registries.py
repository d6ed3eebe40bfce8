"""What is registered is tested and documented: the build fails on whatever is not."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import event, select

from contract_tests import published
from contract_tests.by_day import one_in
from contract_tests.name_server import NameServer
from contract_tests.oidc_issuer import NEVER
from contract_tests.workflows import known, posted, siem
from contract_tests.workflows.billing.ended_month import of_a_month_of_a_plan
from contract_tests.workflows.data import migrating, stored
from contract_tests.workflows.sso import sso_work
from contract_tests.workflows.stage import LEASE_S, Killed, Stage
from contract_tests.workflows.test_three_ways import CASES
from control.events import raise_
from control.mail import Letter
from control.policy.months import HOUR, hour_of
from control.siem import told
from control.workflows.access import password_resets
from control.workflows.instances.resuming import bring_back
from control.workflows.instances.starting import start
from control.workflows.network.dns import DnsResolver
from control.workflows.network.domains import verify_domain
from specserver import Document
from storage.access import organizations, users
from storage.access.teams import Team
from storage.catalogue import cells
from storage.columns import EPOCH
from storage.data import backups
from storage.database import now
from storage.events import audit
from storage.identifiers import new
from storage.instances.instances import Instance
from storage.instances.samples import Sample
from storage.network.domains import Domain
from storage.work import Work

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "work.md").read_text()
_KIND: Final = re.compile(r"[a-z_]+(\.[a-z_]+)+\.v[0-9]+")


def on_instance(kind: str) -> Callable[[Stage], None]:
    return lambda stage: stage.start(kind, stage.instance("running"))


def by_itself(kind: str, **args: Any) -> Callable[[Stage], None]:
    def enqueue(stage: Stage) -> None:
        with stage.database.write() as db:
            known.enqueue(db, kind, f"test:{kind}", args)

    return enqueue


def of_a_domain(stage: Stage) -> None:
    instance = stage.instance("running")
    with stage.database.write() as db:
        name, made = {"hostname": "db.example.org", "cname_target": "db.localhost"}, new("dom_")
        db.add(Domain(id=made, org_id=stage.org_id, instance_id=instance.id, **name))
        start(db, verify_domain, instance, domain_id=made)


def of_a_backup(kind: str) -> Callable[[Stage], None]:
    """One that is to be made, and one that is to be removed."""

    def begin(stage: Stage) -> None:
        instance = stage.instance("running")
        kept = stored.backup(stage.database, stage.cell, instance)
        with stage.database.write() as db:
            backups.fetch(db, instance, kept, lock=True).delete()
            made = backups.request(db, instance, "manual")
            known.enqueue(
                db,
                *(kind, f"{kind}:{instance.id}"),
                {"org_id": stage.org_id, "instance_id": instance.id, "backup_id": made.id},
            )

    return begin


def of_a_migration(kind: str) -> Callable[[Stage], None]:
    """One for which that was asked, and of which the cell knows unless it is to begin."""

    def begin(stage: Stage) -> None:
        migrating.end_all(stage)
        status = {"cutover": "syncing", "begin": ""}.get(kind.rpartition(".")[2], "copying")
        migration = migrating.into(stage, stage.instance("running"), status)
        migrating.ask(stage, migration, kind)

    return begin


def of_a_lost_one(stage: Stage) -> None:
    instance = stage.instance("resuming")
    backup_id = stored.backup(stage.database, stage.cell, instance)
    stage.cell.forget(instance.id)
    with stage.database.write() as db:
        start(db, bring_back, instance, backup_id=backup_id)


def of_entries(stage: Stage) -> None:
    """Of an organization, and of none."""
    with stage.database.write() as db:
        for org_id in (stage.org_id, None):
            audit.append(db, org_id, "test.done", actor_kind="system")
    by_itself("audit.seal")(stage)


def of_a_metered_instance(stage: Stage) -> None:
    instance = stage.instance("running")
    siem.delivery(stage)
    stage.cell.sends_out(new(""), siem.report(instance.id))
    by_itself("egress.collect", cell_id="cell_fake")(stage)


def of_sealed_entries(stage: Stage) -> None:
    of_entries(stage)
    stage.settle()
    by_itself("audit.publish")(stage)


def of_a_letter(stage: Stage) -> None:
    posted.letter(stage, Letter("a@example.com", "So", "it is"))


def of_an_order(stage: Stage) -> None:
    """That nobody decided in time."""
    posted.order(stage, expires_in_s=-1)
    with stage.database.write() as db:
        known.enqueue(db, "approvals.expire", "test:approvals.expire")


def of_a_full_quota(stage: Stage) -> None:
    """The free plan has room for two instances."""
    for _ in range(2):
        stage.instance("running")
    by_itself("alerts.evaluate")(stage)


def of_full_storage(stage: Stage) -> None:
    instance = stage.instance("running")
    with stage.database.write() as db:
        moment = now(db)
        hour = moment.replace(minute=0, second=0, microsecond=0)
        db.add(
            Sample(
                instance_id=instance.id,
                org_id=stage.org_id,
                hour=hour,
                storage_bytes=instance.storage_bytes,
                seen_at=moment,
            )
        )
    by_itself("alerts.forecast")(stage)


def of_a_critical_alert(stage: Stage) -> None:
    instance = stage.instance("running")
    with stage.database.write() as db:
        raise_(db, instance, "instance_failed", "critical", "{name} has failed", "so it is")
    by_itself("alerts.mail")(stage)


def of_a_spent_budget(stage: Stage) -> None:
    """A team with one of nothing, which the first second of running is more than."""
    instance = stage.instance("running", ready_at=EPOCH)
    with stage.database.write() as db:
        db.get_one(Instance, instance.id).size = "s0"
        db.get_one(Team, instance.team_id).monthly_budget_cents = 0
    stage.pass_time(60)
    by_itself("budgets.watch")(stage)


def of_a_reached_cap(stage: Stage) -> None:
    """One of nothing, and an instance to pause."""
    stage.instance("running", ready_at=EPOCH, size="s0")
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).cap_spending(0, "pause")
    stage.pass_time(60)
    by_itself("spending_caps.watch")(stage)


def of_sent_bytes(stage: Stage) -> None:
    instance = stage.instance("running")
    stage.pass_time(3_600)
    with stage.database.read() as db:
        hour = hour_of(now(db)) - HOUR
    stage.cell.sent_bytes[hour] = {instance.id: 1}
    by_itself("usage.egress", cell_id="cell_fake")(stage)


def of_an_hour(stage: Stage) -> None:
    """That nobody has metered yet."""
    stage.pass_time(3_600)
    by_itself("usage.meter")(stage)


def of_a_lost_password(stage: Stage) -> None:
    email = f"{new('').lower()}@example.com"
    with stage.database.write() as db:
        users.create(db, email=email, name="Forgetful")
        password_resets.ask(db, stage.services.sealer, email, {"request_id": "r", "ip": "::1"})


def with_a_second_store(then: Callable[[Stage], None]) -> Callable[[Stage], None]:
    """Without one, a cell is told nothing of copies."""

    def begin(stage: Stage) -> None:
        with stage.database.write() as db:
            cells.fetch(db, "cell_fake").has_second_store = True
        then(stage)

    return begin


# Beside the cases of test_three_ways.py, which follow an instance through its statuses.
OTHERS: Final[dict[str, Callable[[Stage], None]]] = {
    "access.end_urls": by_itself("access.end_urls", cell_id="cell_fake"),
    "alerts.evaluate": of_a_full_quota,
    "alerts.forecast": of_full_storage,
    "alerts.mail": of_a_critical_alert,
    "alerts.sign_ins": by_itself("alerts.sign_ins", user_id="usr_none", guessed="code"),
    "approvals.expire": of_an_order,
    "archiving.tell": on_instance("archiving.tell"),
    "audit.publish": of_sealed_entries,
    "audit.seal": of_entries,
    "backups.create": of_a_backup("backups.create"),
    "backups.drop": of_a_backup("backups.drop"),
    "backups.expire": by_itself("backups.expire"),
    "backups.schedule": by_itself("backups.schedule"),
    "billing.check": of_a_month_of_a_plan("billing.check"),
    "budgets.watch": of_a_spent_budget,
    "cells.hear": by_itself("cells.hear", cell_id="cell_fake"),
    "cells.refresh": by_itself("cells.refresh", cell_id="cell_fake"),
    "copies.tell": with_a_second_store(on_instance("copies.tell")),
    "domains.verify": of_a_domain,
    "egress.collect": of_a_metered_instance,
    "housekeeping": by_itself("housekeeping"),
    "instances.bring_back": of_a_lost_one,
    "instances.converge": on_instance("instances.converge"),
    "instances.network": on_instance("instances.network"),
    "instances.purge": by_itself("instances.purge"),
    "invoices.document": of_a_month_of_a_plan("invoices.document"),
    "invoices.finalize": of_a_month_of_a_plan("invoices.finalize"),
    "issuers.read": by_itself("issuers.read", issuer=NEVER),
    "mail.send": of_a_letter,
    "migrations.begin": of_a_migration("migrations.begin"),
    "migrations.cancel": of_a_migration("migrations.cancel"),
    "migrations.cutover": of_a_migration("migrations.cutover"),
    "migrations.watch": of_a_migration("migrations.watch"),
    "payments.collect": of_a_month_of_a_plan("payments.collect"),
    "payments.hear": of_a_month_of_a_plan("payments.hear"),
    "password_resets.send": of_a_lost_password,
    "metering": by_itself("metering", cell_id="cell_fake"),
    "sso_connections.check": sso_work.of_a_connection("sso_connections.check"),
    "sso_connections.refresh": sso_work.of_a_connection("sso_connections.refresh"),
    "sso_domains.check": sso_work.of_a_domain("sso_domains.check"),
    "sso_domains.verify": sso_work.of_a_domain("sso_domains.verify"),
    "reconcile": by_itself("reconcile", cell_id="cell_fake"),
    "spending_caps.watch": of_a_reached_cap,
    "usage.egress": of_sent_bytes,
    "usage.meter": of_an_hour,
}


def kinds() -> set[str]:
    return set(known.WORK.workflows)


def test_every_workflow_is_repeated_and_killed_by_a_test() -> None:
    assert kinds() == {case.kind for case in CASES.values()} | set(OTHERS)


def test_every_workflow_is_documented() -> None:
    assert [kind for kind in kinds() if f"`{kind}`" not in PAGE] == []


def test_every_schedule_is_documented_with_its_interval() -> None:
    written = dict(re.findall(r"^\| `(\w+)` \| (\d+) s \|", PAGE, re.MULTILINE))
    assert written == {each.name: f"{each.every_s:g}" for each in known.WORK.schedules}


@pytest.fixture
def stage(stage: Stage) -> Iterator[Stage]:
    """One that is told at once that the DNS knows nothing, and trusts an issuer that is down."""
    names = NameServer()
    names.start()
    settings = replace(stage.services.settings, oidc_issuers=(NEVER,))
    resolver = DnsResolver([names.address])
    stage.services = replace(stage.services, resolver=resolver, settings=settings)
    yield stage
    names.close()


@pytest.mark.parametrize("kind", one_in(8, OTHERS))
def test_killed_at_any_statement_it_still_ends(stage: Stage, kind: str) -> None:
    kill_at = statements = 0

    @event.listens_for(stage.database.engine, "before_cursor_execute")
    def _kill(*_of: Any) -> None:
        nonlocal statements
        statements += 1
        if statements == kill_at:
            raise Killed

    for number in range(1, 200):
        OTHERS[kind](stage)
        statements, kill_at, killed = 0, number, False
        try:
            stage.settle()
        except Killed:
            killed = True
        kill_at = 0
        stage.pass_time(LEASE_S + 1)
        stage.settle()
        with stage.database.read() as db:
            assert {each.state for each in db.scalars(select(Work))} == {"done"}
        if not killed:
            assert number > 3, "the workflow asks the database nothing"
            return
    raise AssertionError("the workflow has no end")


def literals() -> Iterator[str]:
    for room in ("control", "handlers", "storage"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_the_events_that_are_published_are_those_that_are_described() -> None:
    described = set(Document.load(ROOT / "openapi.yaml", checked=True).raw["webhooks"])
    # Lines of SIEM deliveries, which are no events.
    found = {text for text in literals() if _KIND.fullmatch(text)} - {told.AUDIT, told.GAP}
    assert found == described


@pytest.mark.parametrize(
    ("kind", "data", "fault"),
    [
        ("instance.slept.v1", {}, "do not describe"),
        ("instance.paused.v1", {"instance_id": "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6"}, "paused_by"),
        ("instance.paused.v1", {"instance_id": 7, "paused_by": "user"}, "not as its schema says"),
        (
            "instance.paused.v1",
            {
                "instance_id": "inst_01JD7QK3V8Y2M4N6P8R0S2T4V6",
                "paused_by": "user",
                "password": "x",
            },
            "no schema describes: {'password'}",
        ),
    ],
)
def test_an_event_unlike_its_schema_is_refused(kind: str, data: dict[str, Any], fault: str) -> None:
    with published.checked() as found, pytest.raises(AssertionError) as refused:
        found.check(kind, data)
    assert fault in str(refused.value)
