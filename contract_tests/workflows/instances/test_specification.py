"""What a cell is told of whose an instance is: the same for all organizations of one person."""

from datetime import UTC, datetime

from contract_tests.workflows.stage import Stage
from control.workflows.instances.subjects import specification
from storage import identifiers
from storage.access import memberships, organizations, users

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def test_a_cell_is_told_of_the_first_owner_in_a_word_that_says_no_more(stage: Stage) -> None:
    with stage.database.write() as db:
        first, second = (
            users.create(db, email=f"{name}@owners.example", name=name).id for name in "ab"
        )
        memberships.create(db, stage.org_id, second, "owner")
        memberships.create(db, stage.org_id, first, "owner").created_at = LONG_AGO
        other = organizations.create(db, name="Other", slug=identifiers.new("s").lower()).id
        memberships.create(db, other, first, "owner")
    instance = stage.instance()
    told = []
    for org_id in (stage.org_id, other):
        instance.org_id = org_id
        with stage.database.read() as db:
            told.append(specification(db, stage.services, instance))
    assert told[0]["person"] == told[1]["person"]
    assert told[0]["tenant"] != told[1]["tenant"]
    assert first not in str(told)
    assert told[0]["person"] not in {"", told[0]["tenant"]}
