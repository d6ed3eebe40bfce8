"""A worker alone in a process, for tests that kill and stop it: DATABASE_URL CELL_FILE LEASE_S."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sqlalchemy.orm import Session

from contract_tests.workflows.fake_cell import FakeCell
from contract_tests.workflows.stage import make_services
from control import workflows
from control.work import Operation, Worker, collect, registry_of, workflow
from storage.access.organizations import Organization
from storage.database import Database


@workflow("test.gate", deadline_s=600)
def gate(op: Operation) -> None:
    """Says in a file by which lease it is inside, waits for the file `out`, then writes."""

    def wait() -> None:
        Path(op.args["inside"]).write_text(str(op.lease))
        while not Path(op.args["out"]).exists():
            time.sleep(0.01)

    def rename(db: Session) -> None:
        db.get_one(Organization, op.args["org_id"]).name = f"lease {op.lease}"

    op.step("wait", wait)
    op.step_in_transaction("rename", rename)


def main(url: str, cell_file: str, lease_s: str) -> None:
    services = make_services(Database(url), FakeCell(Path(cell_file)))
    registry = registry_of(*collect(workflows).workflows.values(), gate)
    Worker(services, registry, threads=2, lease_s=float(lease_s), keep_schedules=False).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
