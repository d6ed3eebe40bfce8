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

from contract_tests import written
from contract_tests.api.harness import House
from contract_tests.api.rows import Estate, estate, is_problem


@pytest.fixture
def here(house: House) -> Estate:
    return estate(house)
'''
TEST = """

def test_{verb}_does_what_its_description_says(house: House, here: Estate) -> None:
    answer = house.request("{method}", f"{path}", here.tenant.key{body})
    assert answer.is_success, answer.text
{audited}    pytest.fail("TODO: {name}: what it answers, each error (is_problem), its events")
"""
AUDITED = """\
    with house.database.read() as db:
        # `written.events_of` gives the events, oldest first.
        entry = written.audited(db, here.tenant.org_id)[0]
    assert (entry.action, entry.detail) == ("{name}", "TODO")
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
UNIQUE_KEY = """
        sa.UniqueConstraint("{key}", "todo", name="uq_{table}_{key}_todo"),"""
RECORD = '''"""TODO: what a {name} is, and who has it."""

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import Owned, Record


class {name}(Owned, Record):
    __tablename__ = "{table}"
    # TODO: what no two of them have alike, or nothing; storage/conflicts.py says it to callers.
    __table_args__ = (UniqueConstraint("{key}", "todo"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
{within}    # TODO: its members.
    todo: Mapped[str]
'''
ONE_OF_EACH = '''"""TODO: what a {name} is. Each {record} has one at most."""

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
{imported}
from storage.lookups import by_key


class {name}(Owned, Record):
    __tablename__ = "{table}"

    {record}_id: Mapped[str] = mapped_column(ForeignKey("{record}s.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
    # TODO: its members.
    todo: Mapped[str]


def of_{record}(db: Session, {record}: {kind}) -> {name}:
    """Also where nobody ever wrote one; that is in no table until it is added."""
    found = by_key(db, {name}, {record}.id)
    return found or {name}({record}_id={record}.id, org_id={record}.org_id, todo="")
'''
ID_COLUMN = """
        sa.Column("id", sa.String(), nullable=False),"""
MIGRATION = '''"""TODO: what a {name} is."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "{revision}"
down_revision = "{before}"


def upgrade() -> None:
    op.create_table(
        "{table}",{own}
        sa.Column("org_id", sa.String(), nullable=False),{within}
        sa.Column("todo", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_{table}_org_id"),{keys}
        sa.PrimaryKeyConstraint("{key}", name="pk_{table}"),{unique}
    )
    op.create_index("ix_{table}_org_id", "{table}", ["org_id"])


def downgrade() -> None:
    op.drop_table("{table}")
'''
VIEWS = '''"""TODO: say what is here, as the JSON that openapi.yaml describes."""

from typing import Any

Json = dict[str, Any]
'''
VIEW = """

def {view}(record: {name}) -> Json:
    # TODO: its members; no secrets, and times by handlers.instants.timestamp.
    return {{"todo": record.todo}}
"""
