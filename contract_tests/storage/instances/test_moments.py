"""What is asked of instances by the time: hours of use, and URLs that may still be used."""

from datetime import timedelta

from contract_tests.storage import tenants
from storage.catalogue import cells
from storage.database import Database
from storage.instances import one_time_urls, samples
from storage.instances.one_time_urls import OneTimeUrl
from storage.instances.samples import Sample

HOUR = timedelta(hours=1)
TICK = timedelta(milliseconds=1)


def test_hours_are_those_from_one_moment_until_before_another(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        mine, other = tenants.instance(db, tenant), tenants.instance(db, tenant)
        first = database.now(db).replace(minute=0, second=0, microsecond=0)
        for instance in (mine, other):
            assert samples.newest(db, tenant.org_id, instance.id) is None
            for number in (1, 2, 0, -1):
                hour = first + number * HOUR
                ids = {"instance_id": instance.id, "org_id": tenant.org_id}
                db.add(Sample(**ids, hour=hour, seen_at=hour))
        db.flush()
        span = {"since": first, "until": first + 2 * HOUR}
        found = samples.of_instance(db, tenant.org_id, mine.id, **span)
        assert [(one.instance_id, one.hour) for one in found] == [
            (mine.id, first),
            (mine.id, first + HOUR),
        ]
        assert samples.of_instance(db, "org_other", mine.id, **span) == []
        newest = samples.newest(db, tenant.org_id, mine.id)
        assert newest is not None
        assert (newest.instance_id, newest.hour) == (mine.id, first + 2 * HOUR)
        assert samples.newest(db, "org_other", mine.id) is None


def test_a_url_may_be_used_until_the_moment_at_which_it_expires(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        mine, other = tenants.instance(db, tenant), tenants.instance(db, tenant)
        ends = database.now(db) + HOUR
        for number, (instance, holder, action) in enumerate(
            [
                (mine, "key_1", "console"),
                (mine, "key_1", "console"),
                (mine, "key_2", "console"),
                (mine, "key_1", "reveal"),
                (other, "key_1", "console"),
            ]
        ):
            ids = {"id": f"url_{number}", "org_id": tenant.org_id, "instance_id": instance.id}
            db.add(OneTimeUrl(**ids, holder=holder, action=action, expires_at=ends))
        cells.register(db, "cell_a", region="eu", url="", public_url="", instance_domain="")
        third = tenants.instance(db, tenant)
        third.cell_id = "cell_a"
        ids = {"id": "url_third", "org_id": tenant.org_id, "instance_id": third.id}
        db.add(OneTimeUrl(**ids, holder="key_1", action="console", expires_at=ends))
        db.flush()
        asked = one_time_urls.asked_for(db, tenant.cell_id, ends - TICK)
        assert {(one.instance.id, one.holder, one.action) for one in asked} == {
            (mine.id, "key_1", "console"),
            (mine.id, "key_2", "console"),
            (mine.id, "key_1", "reveal"),
            (other.id, "key_1", "console"),
        }
        assert len(asked) == 4
        (one,) = [
            each
            for each in asked
            if (each.instance.id, each.holder, each.action) == (mine.id, "key_1", "console")
        ]
        assert {url.id for url in one_time_urls.of(db, one, ends - TICK)} == {"url_0", "url_1"}
        assert one_time_urls.of(db, one, ends) == []
        assert one_time_urls.asked_for(db, tenant.cell_id, ends) == []
        assert one_time_urls.asked_for(db, "cell_other", ends - TICK) == []
        assert one_time_urls.cells_with_unexpired(db, ends - TICK) == ["cell_a", "cell_one"]
        assert one_time_urls.cells_with_unexpired(db, ends) == []
        one_time_urls.forget(db, ["url_0"])
        assert {url.id for url in one_time_urls.of(db, one, ends - TICK)} == {"url_1"}
        assert one_time_urls.forget_expired(db, ends, 10) == 0
        assert one_time_urls.of(db, one, ends - TICK)
        gone = [one_time_urls.forget_expired(db, ends + TICK, 3) for _ in range(3)]
        assert gone == [3, 2, 0]
        assert one_time_urls.asked_for(db, tenant.cell_id, ends - TICK) == []


def test_cells_are_asked_for_urls_of_their_own_instances(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        here, there = tenants.instance(db, tenant), tenants.instance(db, tenant)
        cells.register(db, "cell_a", region="eu", url="", public_url="", instance_domain="")
        there.cell_id = "cell_a"
        now = database.now(db)
        for number, (instance, ends) in enumerate([(here, now), (there, now + HOUR)]):
            ids = {"id": f"url_{number}", "org_id": tenant.org_id, "instance_id": instance.id}
            db.add(OneTimeUrl(**ids, holder="key_1", action="console", expires_at=ends))
        db.flush()
        assert one_time_urls.cells_with_unexpired(db, now) == ["cell_a"]
        assert one_time_urls.cells_with_unexpired(db, now - TICK) == ["cell_a", tenant.cell_id]
