"""Domains whose name servers do not answer delay no other domain of their owner for long."""

from dataclasses import replace

import pytest
from sqlalchemy import select

from contract_tests.name_server import NameServer
from contract_tests.workflows.stage import Stage
from contract_tests.workflows.test_work import until
from control.work import Worker, enqueue
from control.workflows.network.dns import DnsResolver
from control.workflows.network.domains import verify_domain
from storage.identifiers import new
from storage.instances.instances import Instance
from storage.network.domains import Domain

DEAD = 60
LOOKUP_S = 1.0
GOOD = "good.example.org"
WITHIN_S = 40
"""Some 3 s where the machine is idle; one after the other they would take 60 s at least."""


def verify(stage: Stage, instance: Instance, hostname: str) -> None:
    name, made = {"hostname": hostname, "cname_target": "db.example.com"}, new("dom_")
    with stage.database.write() as db:
        db.add(Domain(id=made, org_id=stage.org_id, instance_id=instance.id, **name))
        subject = {"org_id": stage.org_id, "instance_id": instance.id, "person": "user_many"}
        enqueue(db, verify_domain, f"domain:{made}", {**subject, "domain_id": made})


def status(stage: Stage, hostname: str) -> str:
    with stage.database.read() as db:
        return db.scalars(select(Domain.status).where(Domain.hostname == hostname)).one()


@pytest.mark.nightly
def test_a_good_name_waits_for_no_more_than_some_look_ups(stage: Stage) -> None:
    """However many names were asked for before it."""
    names = NameServer()
    names.records[GOOD] = "db.example.com"
    dead = [f"{number}.dead.example.org" for number in range(DEAD)]
    names.silent = set(dead)
    names.start()
    stage.services = replace(stage.services, resolver=DnsResolver([names.address], LOOKUP_S))
    instance = stage.instance("running")
    for name in [*dead, GOOD]:
        verify(stage, instance, name)
    worker = Worker(stage.services, stage.registry, keep_schedules=False)
    worker.start()
    try:
        until(lambda: status(stage, GOOD) == "verified", WITHIN_S)
        assert status(stage, dead[-1]) == "pending", "still asked for"
    finally:
        worker.stop(wait_s=60)
        names.close()
