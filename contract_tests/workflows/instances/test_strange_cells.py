"""A record that what a cell says cannot be written to holds up no other, and ends no turn."""

import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contract_tests.workflows.cell_server import Server, said, serving
from contract_tests.workflows.fake_cell import FakeCells
from contract_tests.workflows.known import take_turn
from contract_tests.workflows.stage import Stage
from control.cells.client import HttpCell
from control.cells.signing import Signer
from control.ordering.placing import catalogue
from control.workflows.instances.fault_isolation import isolated
from storage.catalogue import cells
from storage.database import now
from storage.errors import StorageUnavailable
from storage.instances import samples
from storage.instances.instances import Instance
from storage.network.domains import Domain

CERTIFICATE = {
    "issued_by": "local",
    "not_after": "2030-01-01T00:00:00.000Z",
    "status": "failed",
    "status_reason": "no such host",
    "retry_at": None,
}
# PostgreSQL stores no text that contains it; the cell's client, which these tests do without,
# would not let it through.
UNSTORABLE = "bad \0 x"


def turn(stage: Stage, kind: str) -> None:
    with stage.database.write() as db:
        take_turn(db, kind)
    stage.settle()
    assert not stage.open_work()


def verified(stage: Stage, instance: Instance, hostname: str) -> str:
    """The id of a domain of the instance."""
    domain_id = f"dom_{hostname}"
    with stage.database.write() as db:
        domain = Domain(
            id=domain_id,
            org_id=stage.org_id,
            instance_id=instance.id,
            hostname=hostname,
            cname_target=instance.host,
        )
        domain.became_verified(now(db))
        db.add(domain)
    return domain_id


def noted(stage: Stage, domain_id: str) -> dict[str, Any] | None:
    with stage.database.read() as db:
        domain = db.get(Domain, domain_id)
        assert domain is not None
        return domain.certificate


@pytest.mark.parametrize(
    "strange",
    [
        {"certificate": {**CERTIFICATE, "status_reason": UNSTORABLE}},
        {"certificate": {**CERTIFICATE, "status_reason": ["x"] * 99}},
        {"certificate": {"status": "issued"}},
        {"certificate": 5},
        {},
    ],
)
def test_a_certificate_that_cannot_be_noted_is_one_domains(
    stage: Stage, strange: dict[str, Any]
) -> None:
    instance, other = stage.instance("running"), stage.instance("running")
    lost = stage.instance("pausing")
    verified(stage, instance, "a.example.com")
    verified(stage, other, "b.example.com")
    good = {"hostname": "b.example.com", "certificate": CERTIFICATE}
    stage.cell.becomes(instance.id, domains=[{"hostname": "a.example.com", **strange}])
    stage.cell.becomes(other.id, domains=[good])
    stage.pass_time(11)
    turn(stage, "reconcile")
    assert noted(stage, "dom_b.example.com") == CERTIFICATE
    assert stage.fetch(lost).status == "paused"


@pytest.mark.parametrize(
    "strange",
    [
        {"status": "failed", "status_reason": UNSTORABLE},
        {"status_reason": UNSTORABLE},
        {"port": 2**63},
        {"credentials": {"generation": "many"}},
        {"credentials": {"generation": 2, "overlap_until": "soon"}},
        {"access": [{"holder": UNSTORABLE, "kind": "logs"}]},
        {"access": 5},
        {"domains": 5},
    ],
)
def test_an_observation_that_cannot_be_noted_is_one_instances(
    stage: Stage, strange: dict[str, Any]
) -> None:
    made = [stage.instance("running") for _ in range(3)]
    # The one in the middle: what comes before it is to be noted, and what comes after it.
    first, odd, last = sorted(made, key=lambda each: each.id)
    lost = stage.instance("pausing")
    stage.cell.becomes(odd.id, **strange)
    for each in (first, last):
        stage.cell.becomes(each.id, status="paused", paused_by="idle")
    stage.pass_time(11)
    turn(stage, "reconcile")
    assert [stage.fetch(each).status for each in (first, last)] == ["paused", "paused"]
    assert stage.fetch(lost).status == "paused"


@pytest.mark.parametrize(
    "strange",
    [
        {"storage_bytes": 2**63},
        {"memory_bytes": "much"},
        {"started_at": "soon"},
        {"connections_peaks": [{"hour": "x"}]},
    ],
)
def test_a_reading_that_cannot_be_counted_is_one_instances(
    stage: Stage, strange: dict[str, Any]
) -> None:
    odd, other = stage.instance("running"), stage.instance("running")
    stage.cell.becomes(odd.id, **strange)
    turn(stage, "metering")
    with stage.database.read() as db:
        counted = samples.newest(db, stage.org_id, other.id)
    assert counted is not None
    assert counted.storage_bytes == 4096


def test_what_concerns_all_records_ends_the_turn() -> None:
    with pytest.raises(StorageUnavailable), isolated("inst_1"):
        raise StorageUnavailable("the database cannot be reached")


@pytest.fixture
def told(stage: Stage) -> Iterator[Server]:
    """What says for the stage's cell whatever a test wants, to the client that asks real cells."""
    with serving() as server:
        signer = Signer(Ed25519PrivateKey.generate(), clock=time.time)
        client = HttpCell("cell_fake", f"http+unix://{server.server_address!s}", signer)
        cast("FakeCells", stage.services.cells).cell = cast("Any", client)
        yield server
        client.close()


@pytest.mark.every_database  # what is kept, and how, is the database's
@pytest.mark.parametrize("versions", [["18", 5], None, "18", [], ["9" * 5_000]])
def test_a_cell_that_misdescribes_itself_gets_no_new_record(
    stage: Stage, told: Server, versions: Any
) -> None:
    told.answer = (200, said("cells.get"))
    turn(stage, "cells.refresh")
    with stage.database.read() as db:
        before = cells.fetch(db, "cell_fake")
        offered = catalogue(db)
    odd = {"engine": "postgres", "versions": versions, "extensions": {}, "source": "x"}
    told.answer = (200, {**said("cells.get"), "engines": [odd]})
    stage.pass_time(60)
    turn(stage, "cells.refresh")
    with stage.database.read() as db:
        after = cells.fetch(db, "cell_fake")
        assert catalogue(db) == offered
    assert (after.engines, after.last_seen_at) == (before.engines, before.last_seen_at)


@pytest.mark.every_database  # what is kept, and how, is the database's
def test_a_number_from_a_cell_becomes_few_events(stage: Stage, told: Server) -> None:
    odd, far, other = (stage.instance("running") for _ in range(3))
    verified(stage, odd, "a.example.com")

    def observed(instance: Instance, **more: Any) -> dict[str, Any]:
        return {**said("instances.get"), "instance_id": instance.id, **more}

    def rotated(generation: int) -> dict[str, Any]:
        return {"credentials": {"generation": generation, "overlap_until": None}}

    named = [{"hostname": "a.example.com", "certificate": CERTIFICATE}]
    told.answer = (200, {"items": [observed(odd, domains=named), observed(far), observed(other)]})
    turn(stage, "reconcile")
    asleep = observed(other, status="paused", paused_by="idle")
    items = [observed(odd, **rotated(6_000_000_000)), observed(far, **rotated(10**9)), asleep]
    told.answer = (200, {"items": items})
    turn(stage, "reconcile")
    assert stage.fetch(other).status == "paused"
    assert (stage.fetch(odd).status, stage.events(odd)) == ("running", [])
    assert noted(stage, "dom_a.example.com") == CERTIFICATE
    rotations = [event.data for event in stage.events(far)]
    assert [each["generation"] for each in rotations] == [*range(10**9 - 19, 10**9 + 1), 10**9]
    assert [each["phase"] for each in rotations] == ["started"] * 20 + ["completed"]
