"""What tools/new_operation.py writes, with TODO for what it cannot know."""

from textwrap import dedent

AREA_HEAD = "# TODO: say what is here."
ROOM_HEAD = '"""TODO: say what is here."""\n'
WORDS = dedent("""\
    operationId: {id}
    tags: [{tag}]
    summary: 'TODO: say what it does'
    description: |
      TODO: say when to use it and what happens next.
    """)
BODY = dedent("""\
    requestBody:
      required: true
      content:
        application/json:
          schema: {schema}
          example: {{todo: TODO}}
    """)
ANSWER = dedent("""\
    '{status}':
      description: 'TODO: say what it shows.'
      content:
        application/json:
          schema: {schema}
          example: {{todo: TODO}}
    """)
SCHEMA = dedent("""\
    {schema}:
      type: object
      description: 'TODO: say what it is.'
      unevaluatedProperties: false
      required: [todo]
      properties:
        todo: {{type: string, maxLength: 100, description: 'TODO: its members.'}}
    """)
HANDLERS = '''"""Handlers of the tag {tag}: TODO."""

from typing import Any

from handlers.calls import OrgCall
from specserver import Reply
'''
HANDLER = """

def {verb}(call: OrgCall{arguments}) -> {answer}:
{audit}    raise NotImplementedError("TODO")
"""
TESTS = '''"""TODO: what holds for {noun}, in one sentence."""

import pytest

from contract_tests.api.harness import House
from contract_tests.api.rows import Estate, estate


@pytest.fixture
def here(house: House) -> Estate:
    return estate(house)
'''
TEST = """

def test_{verb}_does_what_its_description_says(house: House, here: Estate) -> None:
    answer = house.request("{method}", f"{path}", here.tenant.key{body})
    assert answer.is_success, answer.text
    # `written.audited` and `written.events_of` read the audit log and the events.
    pytest.fail("TODO: {name}: what it answers, each error of its own, its audit entry and event")
"""
WITHIN = """\
    {record}_id: Mapped[str] = mapped_column(ForeignKey("{record}s.id"))
"""
WITHIN_COLUMN = """
        sa.Column("{record}_id", sa.String(), nullable=False),"""
WITHIN_KEY = """
        sa.ForeignKeyConstraint(
            ["{record}_id"], ["{record}s.id"], name="fk_{table}_{record}_id"
        ),"""
RECORD = '''"""TODO: what a {name} is, and who has it."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import Owned, Record


class {name}(Owned, Record):
    __tablename__ = "{table}"

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
{within}'''
MIGRATION = '''"""TODO: what a {name} is."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "{revision}"
down_revision = "{before}"


def upgrade() -> None:
    op.create_table(
        "{table}",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),{within}
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_{table}_org_id"),{keys}
        sa.PrimaryKeyConstraint("id", name="pk_{table}"),
    )
    op.create_index("ix_{table}_org_id", "{table}", ["org_id"])


def downgrade() -> None:
    op.drop_table("{table}")
'''
