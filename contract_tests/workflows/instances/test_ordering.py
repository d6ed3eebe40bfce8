"""Orders are placed without a request, as approvals and restores place them."""

import pytest

from contract_tests.storage import tenants
from control import ordering
from control.ordering.requester import Requester
from control.policy.placement import Overcommit
from control.policy.price_lists import packaged
from specserver import Invalid
from storage.access import organizations, projects
from storage.catalogue import cells
from storage.database import Database


def test_whoever_has_a_transaction_can_order(database: Database) -> None:
    with database.write() as db:
        tenant = tenants.make(db)
        cell = cells.fetch(db, tenant.cell_id)
        cell.engines = [{"engine": "duckdb", "versions": ["1.5"], "source": "fake"}]
        cell.last_seen_at = database.now(db)
        org = organizations.fetch(db, tenant.org_id)
        project = projects.fetch(db, org.id, tenant.project_id)
        by = Requester(db, org, "usr_somebody", Overcommit(), database.now(db), packaged())
        made = ordering.place(by, project, {"engine": "duckdb", "size": "f0", "region": "local"})
        assert (made.status, made.requested_by) == ("requested", "usr_somebody")
        assert (made.engine_version, made.cell_id) == ("1.5", cell.id)
        with pytest.raises(Invalid, match="size"):
            ordering.place(by, project, {"engine": "duckdb", "size": "f7", "region": "local"})
