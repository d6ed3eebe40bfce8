"""Metering by the hour: each once, whoever meters, however late and after whatever absence."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from contract_tests.workflows.known import enqueue, take_turn
from contract_tests.workflows.stage import Killed, Stage
from control.billing import correcting
from control.policy.months import HOUR, hour_of, month_of
from control.workflows.billing import metering
from storage import identifiers
from storage.access import organizations
from storage.billing import meters
from storage.billing.meters import MeterEntry, MeterReading
from storage.catalogue import cells
from storage.data.backups import Backup
from storage.instances.instances import Instance
from storage.network.domains import Domain


def now(stage: Stage) -> datetime:
    with stage.database.read() as db:
        return stage.database.now(db)


def look(stage: Stage, kind: str = "usage.meter") -> None:
    with stage.database.write() as db:
        take_turn(db, kind)
    while stage.turn():
        pass


def entries(stage: Stage, meter: str) -> list[tuple[datetime, int]]:
    rows = select(MeterEntry).where(MeterEntry.meter == meter)
    with stage.database.read() as db:
        found = db.scalars(rows.order_by(MeterEntry.hour, MeterEntry.seq))
        return [(one.hour, one.quantity) for one in found]


def backup(stage: Stage, instance: Instance, stored: int | None, **values: Any) -> None:
    chosen = {"status": "completed", "completed_at": now(stage) - 9 * HOUR, **values}
    with stage.database.write() as db:
        db.add(
            Backup(
                id=identifiers.new("bkp_"),
                org_id=stage.org_id,
                instance_id=instance.id,
                kind="manual",
                engine="duckdb",
                engine_version="1.5",
                size="f0",
                storage_bytes=10**9,
                stored_bytes=stored,
                **chosen,
            )
        )


def domain(stage: Stage, instance: Instance, name: str, status: str, verified_at: datetime) -> None:
    certificate = {"status": status, "issued_by": "acme", "not_after": None}
    with stage.database.write() as db:
        db.add(
            Domain(
                id=identifiers.new("dom_"),
                org_id=stage.org_id,
                instance_id=instance.id,
                hostname=name,
                cname_target=instance.host,
                status="verified",
                verified_at=verified_at,
                certificate=certificate,
            )
        )


def test_backups_are_metered_as_they_were_when_the_hour_began(stage: Stage) -> None:
    instance, gone = stage.instance("running"), stage.instance("deleted")
    last = hour_of(now(stage)) - HOUR
    backup(stage, instance, 700)
    backup(stage, instance, 20, dropped_at=last + timedelta(minutes=1), status="deleted")
    backup(stage, instance, 3_000, dropped_at=last, status="deleted")
    backup(stage, instance, 40_000, completed_at=last + timedelta(seconds=1))
    backup(stage, instance, None, status="failed")
    backup(stage, gone, 500_000)
    for _ in range(2):
        look(stage)
    assert entries(stage, "backups") == [(last, 720)]
    # However late it is asked, of hours that nobody has metered.
    stage.pass_time(3 * 3600)
    look(stage)
    assert entries(stage, "backups") == [
        (last, 720),
        (last + HOUR, 40_700),
        (last + 2 * HOUR, 40_700),
        (last + 3 * HOUR, 40_700),
    ]


def test_domains_are_metered_while_their_certificate_is_issued(stage: Stage) -> None:
    instance, last = stage.instance("running"), hour_of(now(stage)) - HOUR
    domain(stage, instance, "a.example.com", "issued", last - HOUR)
    domain(stage, instance, "b.example.com", "issued", last)
    domain(stage, instance, "c.example.com", "pending", last)
    domain(stage, instance, "d.example.com", "failed", last)
    domain(stage, instance, "e.example.com", "issued", last + timedelta(minutes=1))
    look(stage)
    assert entries(stage, "domains") == [(last, 2)]


def test_two_workers_and_one_that_is_killed_meter_each_hour_once(stage: Stage) -> None:
    backup(stage, stage.instance("running"), 100)
    last = hour_of(now(stage)) - HOUR
    with stage.database.write() as db:
        for lane in ("one", "two"):
            enqueue(db, "usage.meter", lane)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(meters, "note_metered", _killed)
        with pytest.raises(Killed):
            stage.turn()
    stage.pass_time(60)
    while stage.turn():
        pass
    assert entries(stage, "backups")[0] == (last, 100)
    assert len(entries(stage, "backups")) == len({hour for hour, _ in entries(stage, "backups")})


def _killed(*_: Any) -> None:
    raise Killed


def test_a_clock_that_is_set_back_meters_nothing_again(stage: Stage) -> None:
    backup(stage, stage.instance("running"), 100)
    look(stage)
    before = entries(stage, "backups")
    stage.database.clock_offset -= timedelta(hours=30)
    look(stage)
    assert entries(stage, "backups") == before
    stage.database.clock_offset += timedelta(hours=30)
    look(stage)
    assert entries(stage, "backups") == before


def test_what_was_not_metered_for_too_long_is_not_metered_any_more(stage: Stage) -> None:
    backup(stage, stage.instance("running"), 100)
    look(stage)
    stage.pass_time(40 * 86_400)
    with stage.database.read() as db:
        assert len(metering.hours_due(db, stage.database.now(db))) == metering.HOURS_MAX


def test_egress_is_metered_when_an_hour_is_over_and_grows_with_late_figures(stage: Stage) -> None:
    instance, last = stage.instance("running"), hour_of(now(stage)) - HOUR
    if now(stage) - last - HOUR < timedelta(minutes=3):
        stage.pass_time(180)
    stage.cell.sent_bytes[last] = {instance.id: 1_000, "inst_" + "0" * 26: 5}
    stage.cell.sent_bytes[last + HOUR] = {instance.id: 1}
    for _ in range(2):
        look(stage, "usage.egress")
    assert entries(stage, "egress") == [(last, 1_000)]
    stage.cell.sent_bytes[last] = {instance.id: 1_500}
    look(stage, "usage.egress")
    stage.cell.sent_bytes[last] = {instance.id: 900}
    look(stage, "usage.egress")
    assert entries(stage, "egress") == [(last, 1_000), (last, 500)]


def test_a_cell_that_was_away_for_a_day_is_asked_for_all_of_it(stage: Stage) -> None:
    # Amid a month: what is found out about one that is closed counts in the next.
    amid = month_of(now(stage)).end + timedelta(days=9)
    stage.pass_time((amid - now(stage)).total_seconds())
    instance = stage.instance("running")
    stage.pass_time(300)
    look(stage, "usage.egress")
    first = hour_of(now(stage)) - HOUR
    for number in range(1, 26):
        stage.cell.sent_bytes[first + number * HOUR] = {instance.id: number}
    stage.pass_time(25 * 3600)
    look(stage, "usage.egress")
    hours = [hour for hour, _ in entries(stage, "egress")]
    assert hours == [first + number * HOUR for number in range(1, len(hours) + 1)]
    assert len(hours) in (24, 25)


def test_a_cell_makes_nobody_pay_for_what_it_does_not_host(stage: Stage) -> None:
    instance, last = stage.instance("running"), hour_of(now(stage)) - HOUR
    with stage.database.write() as db:
        cells.register(
            db,
            "cell_other",
            region="local",
            url="http+unix:///elsewhere",
            public_url="https://other.local.localhost:8443",
            instance_domain="localhost",
        )
        db.get_one(Instance, instance.id).cell_id = "cell_other"
    stage.pass_time(300)
    stage.cell.sent_bytes[last] = {instance.id: 1_000}
    with stage.database.write() as db:
        enqueue(db, "usage.egress", "one", {"cell_id": "cell_fake"})
    while stage.turn():
        pass
    assert entries(stage, "egress") == []


def test_an_entry_is_corrected_by_another_and_never_changed(stage: Stage) -> None:
    instance, hour = stage.instance("running"), hour_of(now(stage))
    reading = MeterReading(instance.id, "egress", hour, stage.org_id, None, "local", "solo", 10)
    book = stage.services.settings.prices
    with stage.database.write() as db:
        meters.raise_to(db, [reading])
        for _ in range(2):
            correcting.correct(
                db, book, reading._replace(quantity=4), "the gateway counted twice", hour
            )
    assert entries(stage, "egress") == [(hour, -6), (hour, 10)]
    with pytest.raises(Exception, match="corrected by another entry"), stage.database.write() as db:
        db.scalars(select(MeterEntry)).first().quantity = 3  # type: ignore[union-attr]


def test_a_late_reading_does_not_undo_a_correction(stage: Stage) -> None:
    """And a correction of an hour that nobody has metered takes no reading's place."""
    instance, hour = stage.instance("running"), hour_of(now(stage))
    reading = MeterReading(instance.id, "egress", hour, stage.org_id, None, "local", "solo", 10)
    book = stage.services.settings.prices
    with stage.database.write() as db:
        meters.raise_to(db, [reading])
        correcting.correct(db, book, reading._replace(quantity=4), "so", hour)
        for _ in range(2):
            meters.raise_to(db, [reading])
        meters.raise_to(db, [reading._replace(quantity=11)])
        backups = reading._replace(meter="backups", quantity=3)
        correcting.correct(db, book, backups, "so", hour)
        meters.note(db, [backups._replace(quantity=20)])
    assert entries(stage, "egress") == [(hour, -6), (hour, 10), (hour, 1)]
    assert entries(stage, "backups") == [(hour, 3), (hour, 20)]


def test_an_organization_that_is_closed_has_no_seats(stage: Stage) -> None:
    with stage.database.write() as db:
        organizations.fetch(db, stage.org_id).close(stage.database.now(db))
    look(stage)
    assert entries(stage, "seats") == []
