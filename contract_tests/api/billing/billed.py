"""What tests of billing write behind the API: instances, spans and meters of another time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from contract_tests.api.harness import House, Tenant
from contract_tests.workflows.known import take_turn
from control.policy import price_lists
from control.policy.months import HOUR, Month, hour_of, month_of
from storage import identifiers
from storage.access import teams
from storage.billing import meters
from storage.billing.meters import MeterReading
from storage.catalogue import cells
from storage.instances.instances import Instance
from storage.instances.spans import BilledSpan


def last_month(house: House) -> Month:
    """The one that is over, by the clock that records are dated by: no test has begun in it."""
    house.set_clock_right()
    return month_of(month_of(house.now()).begin - HOUR)


def with_an_instance(house: House) -> Tenant:
    """On the team plan, with an instance of the size s1."""
    tenant = house.tenant("Difference Engines", plan="team")
    house.instance(tenant, size="s1")
    return tenant


def instance(house: House, tenant: Tenant, size: str, storage_bytes: int, **values: Any) -> str:
    """One that was never ready, so that all its spans are those that a test writes."""
    instance_id = identifiers.new("inst_")
    with house.database.write() as db:
        db.add(
            Instance(
                **{
                    "id": instance_id,
                    "org_id": tenant.org_id,
                    "project_id": tenant.project_id,
                    "name": instance_id,
                    "engine": "duckdb",
                    "engine_version": "1.5",
                    "size": size,
                    "region": "local",
                    "storage_bytes": storage_bytes,
                    "host": f"{instance_id.lower()}.local",
                    "port": 443,
                    "cell_id": cells.every(db)[0].id,
                    "status": "deleted",
                    "desired_status": "deleted",
                    **values,
                }
            )
        )
    return instance_id


def span(
    house: House, tenant: Tenant, of: str, since: datetime, until: datetime, **values: Any
) -> None:
    chosen = {"team_id": teams.everyone_of(tenant.org_id), "runs": True, **values}
    with house.database.write() as db:
        storage_bytes = db.get_one(Instance, of).storage_bytes
        chosen = {"storage_bytes": storage_bytes, **chosen}
        db.add(BilledSpan(org_id=tenant.org_id, instance_id=of, since=since, until=until, **chosen))


def metered(house: House, tenant: Tenant, of: str, meter: str, at: datetime, quantity: int) -> None:
    whose = tenant.org_id, teams.everyone_of(tenant.org_id), "local", "team"
    with house.database.write() as db:
        meters.raise_to(db, [MeterReading(of, meter, hour_of(at), *whose, quantity)])


@contextmanager
def money_off(house: House) -> Iterator[None]:
    settings = house.services.settings
    off = replace(settings, prices=price_lists.free())
    object.__setattr__(house.services, "settings", off)
    try:
        yield
    finally:
        object.__setattr__(house.services, "settings", settings)


def cap_reached(house: House, tenant: Tenant, instance_id: str) -> None:
    """More than a spending cap of nothing is spent, and noticed."""
    path = f"{tenant.path}/instances/{instance_id}"
    assert house.request("PATCH", path, tenant.key, json={"size": "s0"}).is_success
    house.settle()
    cap = {"monthly_amount_cents": 0, "on_reach": "pause"}
    assert house.request("PUT", f"{tenant.path}/spending-cap", tenant.key, json=cap).is_success
    house.pass_time(60)
    with house.database.write() as db:
        take_turn(db, "spending_caps.watch")
    house.settle()
