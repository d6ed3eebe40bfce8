"""Networks and domains: which a cell is told of, whose a name is, and what a branch begins with."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy.orm import Session

from contract_tests.storage import tenants
from storage import tenancy
from storage.database import Database
from storage.errors import RecordNotFound, StateConflict
from storage.instances.instances import Instance
from storage.network import domains, networks
from storage.network.networks import Network

TICK = timedelta(milliseconds=1)


def network(db: Session, instance: Instance, updated_at: datetime, **values: object) -> Network:
    ids = {"instance_id": instance.id, "org_id": instance.org_id}
    made = Network(**ids, version=2, applied_version=1, updated_at=updated_at, **values)
    db.add(made)
    db.flush()
    return made


def test_a_cell_is_told_of_the_networks_that_it_does_not_know_yet(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        late, known, refused = (tenants.instance(db, tenant) for _ in range(3))
        at = database.now(db)
        untold = network(db, late, at)
        network(db, known, at).became_applied(2)
        network(db, refused, at).is_held_up("the cell does not answer")
        db.flush()
        for before in (at + TICK, at + timedelta(days=1)):
            assert networks.untold(db, tenant.cell_id, before) == [untold]
        assert networks.untold(db, tenant.cell_id, at) == []
        assert networks.untold(db, "cell_other", at + TICK) == []


def test_a_network_is_applied_once_the_cell_has_its_last_version(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        instance = tenants.instance(db, tenant)
        begins = networks.of_instance(db, instance)
        assert (begins.version, begins.is_applied, begins.allow_cidrs) == (0, True, None)
        assert (begins.instance_id, begins.org_id) == (instance.id, tenant.org_id)
        assert begins.updated_at == instance.created_at
        made = network(db, instance, database.now(db), allow_cidrs=["192.0.2.0/24"])
        assert networks.of_instance(db, instance) is made
        made.replace({"client_ca_pem": "pem"}, "usr_1")
        assert (made.version, made.updated_by, made.is_applied) == (3, "usr_1", False)
        assert (made.allow_cidrs, made.client_ca_pem) == (["192.0.2.0/24"], "pem")
        made.is_held_up("full")
        made.became_applied(2)
        assert (made.applied_version, made.status_reason) == (2, "full")
        made.became_applied(1)
        assert made.applied_version == 2
        made.became_applied(3)
        assert (made.is_applied, made.status_reason) == (True, None)
        made.is_held_up("late")
        assert made.status_reason is None


def test_a_branch_begins_with_the_network_of_its_source(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        source, branch, free, other = (tenants.instance(db, tenant) for _ in range(4))
        kept = {"allow_cidrs": [], "client_ca_pem": "pem", "updated_by": "usr_1"}
        network(db, source, database.now(db), **kept)
        networks.hand_on(db, source, branch)
        networks.hand_on(db, free, other)
        db.flush()
        found = networks.of_instance(db, branch)
        assert {name: getattr(found, name) for name in kept} == kept
        assert (found.org_id, found.version, found.is_applied) == (tenant.org_id, 1, True)
        assert networks.of_instance(db, other).version == 0


def test_a_domain_is_in_force_while_it_is_verified(database: Database) -> None:
    with database.write() as db:
        at = database.now(db)
        one = tenants.domain(db, tenants.instance(db, tenants.make(db)), "a.example")
        one.became_failed("no record", at)
        assert (one.status, one.status_reason, one.checked_at) == ("failed", "no record", at)
        one.verify_again()
        assert (one.status, one.status_reason) == ("pending", None)
        one.became_verified(at)
        one.certificate = {"status": "active"}
        one.became_verified(at + TICK)
        assert (one.checked_at, one.verified_at) == (at + TICK, at)
        one.verify_again()
        assert (one.status, one.status_reason) == ("verified", None)
        one.became_failed("gone", at + TICK)
        assert one.verified_at is None
        assert one.certificate is None


def test_domains_are_those_of_an_instance_of_a_cell_or_of_whoever_holds_a_name(
    database: Database,
) -> None:
    with database.write() as db:
        tenant, stranger = tenants.make(db), tenants.make(db)
        mine, beside = tenants.instance(db, tenant), tenants.instance(db, tenant)
        theirs = tenants.instance(db, stranger)
        second = tenants.domain(db, mine, "b.example", "verified")
        first = tenants.domain(db, mine, "a.example", "verified")
        pending = tenants.domain(db, mine, "c.example")
        of_beside = tenants.domain(db, beside, "d.example", "verified")
        of_stranger = tenants.domain(db, theirs, "c.example", "verified")
        db.flush()
        assert domains.verified_hostnames(db, mine) == ["a.example", "b.example"]
        assert domains.count(db, mine) == 3
        assert {one.id for one in domains.verified_of_cell(db, tenant.cell_id)} == {
            first.id, second.id, of_beside.id, of_stranger.id,
        }  # fmt: skip
        assert domains.verified_of_cell(db, "cell_other") == []
        page = domains.page(db, mine, limit=2, after=None)
        assert page.items == [pending, first]
        assert domains.page(db, mine, limit=2, after=page.next_after).items == [second]
        assert domains.fetch(db, mine, first.id) is first
        for instance, wanted in ((beside, first.id), (theirs, first.id), (mine, "dom_none")):
            with pytest.raises(RecordNotFound, match=r"^domain not found$"):
                domains.fetch(db, instance, wanted)
    with database.write() as db:
        tenancy.restrict(db, tenant.org_id)
        held = domains.holder(db, "c.example")
        assert held is not None
        assert held.id == of_stranger.id
        assert domains.holder(db, "e.example") is None
    with (
        pytest.raises(StateConflict, match="the instance already has this domain"),
        database.write() as db,
    ):
        tenants.domain(db, db.get_one(Instance, mine.id), "A.EXAMPLE".lower())
