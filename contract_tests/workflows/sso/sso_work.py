"""Work on domains and connections of single sign-on: of each kind, some that is to be done."""

from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from contract_tests.workflows import known
from contract_tests.workflows.sso.identity_providers import expired_and_silent
from contract_tests.workflows.stage import Stage
from storage.database import now
from storage.identifiers import new
from storage.sso import connections, domains
from storage.sso.domains import SsoDomain

Begin = Callable[[Stage], None]


def of_a_domain(kind: str) -> Begin:
    """One that was verified two days ago, and whose record is gone."""
    return _begun(kind, "domain_id", _lost_domain)


def of_a_connection(kind: str) -> Begin:
    """One whose provider does not answer, and whose certificate has expired."""
    return _begun(kind, "connection_id", _silent_connection)


def _begun(kind: str, named: str, make: Callable[[Session, str, datetime], str]) -> Begin:
    def begin(stage: Stage) -> None:
        with stage.database.write() as db:
            made = make(db, stage.org_id, now(db))
            args = {"org_id": stage.org_id, named: made, "person": stage.org_id}
            # A check finds by itself what there is to do.
            known.enqueue(db, kind, f"test:{made}", {} if kind.endswith(".check") else args)

    return begin


def _lost_domain(db: Session, org_id: str, moment: datetime) -> str:
    name = f"{new('').lower()}.example.org"
    made = SsoDomain(id=new("ssod_"), org_id=org_id, domain=name, txt_value="none")
    domains.create(db, made)
    made.was_found(moment - timedelta(days=2))
    return made.id


def _silent_connection(db: Session, org_id: str, moment: datetime) -> str:
    made = expired_and_silent(org_id, moment)
    connections.add(db, made)
    return made.id
