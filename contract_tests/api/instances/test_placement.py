"""Which of a region's cells an order goes to."""

from contract_tests.api.conftest import MakeHouse
from contract_tests.api.harness import CELL_ID, House, Tenant
from storage.catalogue import cells
from storage.catalogue.cells import Cell
from storage.instances import instances

TWIN = f"{CELL_ID[:-1]}7"


def two_cells(house: House) -> None:
    """The second like the first, heard of now."""
    with house.database.write() as db:
        first = cells.fetch(db, CELL_ID)
        second = cells.register(
            db,
            TWIN,
            region=first.region,
            url=first.url,
            public_url=first.public_url,
            instance_domain=first.instance_domain,
        )
        second.ports, second.engines = first.ports, first.engines
        first.last_seen_at = second.last_seen_at = house.database.now(db)


def silence(house: House, *cell_ids: str) -> None:
    with house.database.write() as db:
        for cell_id in cell_ids:
            found: Cell = cells.fetch(db, cell_id)
            found.last_seen_at = house.database.now(db) - 2 * cells.SILENT_AFTER


def test_an_order_goes_to_the_cell_with_the_fewest_instances(make_house: MakeHouse) -> None:
    house = make_house()
    tenant = house.tenant()
    two_cells(house)
    made = [house.instance(tenant, running=False) for _ in range(4)]
    assert sorted(_cells_of(house, tenant, made)) == [CELL_ID, CELL_ID, TWIN, TWIN]
    gone = next(one for one in made if _cells_of(house, tenant, [one]) == [TWIN])
    house.request("DELETE", f"{tenant.path}/instances/{gone}", tenant.key)
    assert _cells_of(house, tenant, [house.instance(tenant, running=False)]) == [TWIN]


def test_no_order_goes_to_a_cell_that_is_silent_while_another_is_not(
    make_house: MakeHouse,
) -> None:
    house = make_house()
    tenant = house.tenant()
    two_cells(house)
    silence(house, CELL_ID)
    made = [house.instance(tenant, running=False) for _ in range(3)]
    assert _cells_of(house, tenant, made) == [TWIN] * 3
    silence(house, CELL_ID, TWIN)
    assert _cells_of(house, tenant, [house.instance(tenant, running=False)]) == [CELL_ID]


def _cells_of(house: House, tenant: Tenant, ids: list[str]) -> list[str]:
    with house.database.read() as db:
        return [instances.fetch(db, tenant.org_id, one).cell_id for one in ids]
