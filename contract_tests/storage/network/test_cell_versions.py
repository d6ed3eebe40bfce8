"""The versions that cells are told of: each change of clients or domains makes a newer one."""

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import update
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from storage.catalogue import cells
from storage.database import Database
from storage.instances.instances import Instance
from storage.network import domains, networks
from storage.network.networks import Network

AT: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)


def version(db: Session, instance: Instance) -> int:
    found = networks.of_instance(db, instance)
    db.flush()
    db.refresh(found)
    return found.cell_version


def test_each_change_makes_a_newer_version(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        begins = networks.of_instance(db, instance)
        assert (begins.version, begins.applied_version, begins.cell_version) == (0, 0, 0)
        networks.domains_changed(db, instance)
        assert version(db, instance) == 1
        networks.domains_changed(db, instance)
        assert version(db, instance) == 2
        network = networks.of_instance(db, instance)
        network.replace({"allow_cidrs": []}, "usr_1")
        assert version(db, instance) == 3
        assert (network.version, network.status_reason) == (1, None)
        # As another transaction does that takes a domain meanwhile.
        behind = update(Network).values(cell_version=7)
        db.execute(behind, execution_options={"synchronize_session": False})
        network.domains_changed()
        assert version(db, instance) == 8


def test_the_first_replacement_makes_the_first_version(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        network = networks.of_instance(db, instance)
        network.replace({"allow_cidrs": ["192.0.2.0/24"]}, "usr_1")
        db.add(network)
        assert version(db, instance) == 1
        assert (network.version, network.allow_cidrs) == (1, ["192.0.2.0/24"])


def test_a_version_is_newer_than_what_the_cell_has(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        networks.domains_changed(db, instance, above=5)
        assert version(db, instance) == 6
        networks.domains_changed(db, instance, above=3)
        assert version(db, instance) == 7
        networks.domains_changed(db, instance, above=7)
        assert version(db, instance) == 8
        networks.domains_changed(db, instance, above=20)
        assert version(db, instance) == 21
        beside = tenants.instance(db, tenants.make(db))
        never_told = networks.of_instance(db, beside)
        db.add(never_told)
        db.flush()
        never_told.domains_changed()
        assert version(db, beside) == 1


def test_the_settings_are_as_old_as_before_when_domains_change(database: Database) -> None:
    with database.write() as db:
        instance = tenants.instance(db, tenants.make(db))
        network = networks.of_instance(db, instance)
        network.replace({"client_ca_pem": "pem"}, "usr_1")
        network.updated_at = AT
        db.add(network)
        db.flush()
        networks.domains_changed(db, instance)
        db.refresh(network)
        assert (network.updated_at, network.version, network.updated_by) == (AT, 1, "usr_1")
        network.replace({"client_ca_pem": None}, "usr_2")
        db.flush()
        db.refresh(network)
        assert network.updated_at > AT


def test_versions_of_a_cell_are_those_of_its_instances(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        cells.register(db, "cell_a", region="eu", url="", public_url="", instance_domain="")
        here, there, silent, branch = (tenants.instance(db, tenant) for _ in range(4))
        there.cell_id = "cell_a"
        networks.domains_changed(db, here)
        networks.domains_changed(db, there, above=8)
        assert networks.cell_versions(db, tenant.cell_id) == {here.id: 1}
        assert networks.cell_versions(db, "cell_a") == {there.id: 9}
        assert networks.cell_versions(db, "cell_other") == {}
        networks.of_instance(db, there).replace({"allow_cidrs": []}, None)
        db.flush()
        networks.hand_on(db, there, branch)
        networks.hand_on(db, here, silent)
        db.flush()
        # What a branch begins with is the first that its cell is told.
        assert networks.cell_versions(db, tenant.cell_id) == {here.id: 1, branch.id: 1}


def test_domains_of_a_cell_are_those_of_its_instances(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        cells.register(db, "cell_a", region="eu", url="", public_url="", instance_domain="")
        here, there = tenants.instance(db, tenant), tenants.instance(db, tenant)
        there.cell_id = "cell_a"
        first = tenants.domain(db, here, "a.example", "verified")
        second = tenants.domain(db, there, "b.example", "verified")
        assert domains.verified_of_cell(db, tenant.cell_id) == [first]
        assert domains.verified_of_cell(db, "cell_a") == [second]
