"""Egress: what connections have sent out, asked of cells for the SIEM deliveries that want it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from control.cells.answer_checks import Answer
from control.work import Operation, Schedule, workflow
from control.workflows.catalogue.cells import cell_of, left_to_the_next_turn
from storage import identifiers
from storage.database import Database
from storage.events import egress, events, siem_deliveries
from storage.instances import instances

EVERY_S: Final = 10
INSTANCES_MAX: Final = 5_000
"""That a cell is asked about."""
PAGES_MAX: Final = 20
KEPT_MAX: Final = 200_000
"""Reports that an organization has waiting; more are only counted, and told of as a gap."""
_log = structlog.get_logger("egress")


def in_lanes(db: Session) -> dict[str, dict[str, Any]]:
    """A lane for each cell with an instance of an organization that sends anything to a SIEM."""
    return {f"egress:{each}": {"cell_id": each} for each in siem_deliveries.cells_metered(db)}


@workflow("egress.collect", deadline_s=60)
def collect(op: Operation) -> None:
    """Of one cell. Killed between recording and telling the cell so, it records some again."""
    cell = cell_of(op)
    with op.database.read() as db:
        hosted = instances.of_cell(db, cell.id)
        metered = siem_deliveries.orgs_with_enabled(db, {each.org_id for each in hosted})
    owners = {each.id: each.org_id for each in hosted if each.org_id in metered}
    asked = sorted(owners)[:INSTANCES_MAX]
    client, taken = op.services.cells.for_cell(cell), list[str]()
    with left_to_the_next_turn(cell):
        for _ in range(PAGES_MAX):
            found = client.collect_egress(asked, taken)
            if not found:
                return
            record(op.database, cell.id, owners, found)
            taken = [each["name"] for each in found]
        client.collect_egress(asked, taken)


def record(
    database: Database, cell_id: str, owners: Mapping[str, str], found: Sequence[Answer]
) -> None:
    """What is of another cell's instance, or of nobody who asks, is left out.

    What is recorded again has the same ids, so that a SIEM can tell.
    """
    reports: defaultdict[str, list[tuple[str, datetime, dict[str, Any]]]] = defaultdict(list)
    for told in found:
        until = datetime.fromisoformat(told["until"])
        for number, each in enumerate(told["reports"]):
            org_id = owners.get(each["instance_id"])
            if org_id is not None:
                span = {"since": told["since"], "until": told["until"]}
                made = identifiers.derived("evt_", f"{cell_id} {told['name']} {number}")
                reports[org_id].append((made, until, {**each, **span}))
    for org_id, some in sorted(reports.items()):
        with database.write() as db:
            room = max(KEPT_MAX - egress.waiting(db, org_id), 0)
            egress.append(db, org_id, some[:room])
            events.wake_deliverers(db)
            if (over := len(some) - room) > 0:
                egress.pass_over(db, org_id, over)
                _log.warning("egress.not_kept", org_id=org_id, reports=over)


SCHEDULE: Final = Schedule("egress", collect, every_s=EVERY_S, lanes=in_lanes)
