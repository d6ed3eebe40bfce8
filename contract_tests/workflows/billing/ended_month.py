"""A month that is over, and whose invoices are to be made."""

from collections.abc import Callable
from dataclasses import replace

from contract_tests import invoicing
from contract_tests.workflows import known
from contract_tests.workflows.stage import Stage
from control.policy.invoices import FINAL_AFTER
from control.workflows.billing import invoices as invoice_work
from storage.access.organizations import Organization
from storage.database import now


def of_a_month_of_a_plan(then: str) -> Callable[[Stage], None]:
    """That is over, of an organization that pays; `then` is the workflow that is begun."""

    def begin(stage: Stage) -> None:
        with stage.database.write() as db:
            db.get_one(Organization, stage.org_id).plan = "team"
        with stage.database.read() as db:
            month = invoicing.next_month(now(db))
        issuer = invoicing.issuer_from(month)
        settings = replace(stage.services.settings, issuer=issuer)
        stage.services = replace(stage.services, settings=settings)
        with stage.database.read() as db:
            left = month.end + FINAL_AFTER - now(db)
        stage.pass_time(left.total_seconds() + 1)
        if then == "invoices.document":
            while invoice_work.finalize_next(stage.services, issuer, month):
                pass
        else:
            with stage.database.write() as db:
                known.enqueue(db, then, f"test:{then}", {})

    return begin
