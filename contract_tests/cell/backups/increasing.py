"""What the tests of increments make: backups of an instance that build on each other."""

from typing import Any

from contract_tests.cell.backups.backup_calls import back_up
from contract_tests.cell.backups.test_backups import Hosted

SMALL = {"backup_increment_bytes_min": 0}
# To verify each one would take as long as all the rest.
UNVERIFIED = {**SMALL, "backup_verify_bytes_max": 1}


def series(source: Hosted, count: int) -> list[dict[str, Any]]:
    """A backup after each number that is written, from 1 on."""
    made = []
    for number in range(1, count + 1):
        source.write(number)
        made.append(back_up(source.rig, source.instance_id, "scheduled"))
    return made


def methods(made: list[dict[str, Any]]) -> list[str]:
    return [each["method"] for each in made]


def ids(made: list[dict[str, Any]]) -> list[str]:
    return [each["backup_id"] for each in made]
