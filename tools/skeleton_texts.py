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
          example: {example}
    """)
ANSWER = dedent("""\
    '{status}':
      description: 'TODO: say what it shows.'
      content:
        application/json:
          schema: {schema}
          example: {example}
    """)
SCHEMA = dedent("""\
    {schema}:
      type: object
      description: 'TODO: say what it is.'
      unevaluatedProperties: false
      required: [{required}]
      properties:
    """)
FATE_WORDS = """\
  TODO: say what branches and restored instances get of it, and what is left after an erasure.
"""
HANDLERS = '''"""Handlers of the tag {tag}: TODO."""

from typing import Any

from handlers.calls import OrgCall

Body = dict[str, Any]
'''
HANDLER = """

def {verb}(call: OrgCall{arguments}) -> {answer}:
{change}{audit}    raise NotImplementedError("TODO")
"""
# A method of the instance refuses one that is deleted; this one is for what its cell need not do.
CHANGE = "    instance.change(waits=False)\n"
GET = """

def {verb}(call: OrgCall{arguments}) -> Body:
    return views.{view}({table}.of_{record}(call.db, {record}))
"""
PUT = """

def {verb}(call: OrgCall{arguments}) -> Body:
{change}    replaced = {table}.replace(call.db, {record}, body)
    # TODO: is this what the audit log is to say? Of free texts and long values, names and numbers.
    call.audit(target={record}.id, detail={{{audited}}})
    return views.{view}(replaced)
"""
TESTS = '''"""TODO: what holds for {noun}, in one sentence."""

import pytest
'''
TEST = """

def test_{verb}_does_what_its_description_says(house: House) -> None:
{here}    where = {where}
    answer = house.request("{method}", where, tenant.key{body})
    assert answer.is_success, answer.text
{shown}{audited}    pytest.fail("TODO: {name}: its answers, each error (rows.is_problem), events")
"""
PATH_HELPER = """

def {helper}({parameters}) -> str:
    return {path}
"""
SHOWN = """\
    assert house.get(where, tenant.key).json() == answer.json()
"""
AUDITED = """\
    with house.database.read() as db:
        # `written.events_of` gives the events, oldest first.
        entry = written.audited(db, tenant.org_id)[0]
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
        sa.UniqueConstraint("{key}", "{first}", name="uq_{table}_{key}_{first}"),"""
RECORD = '''"""TODO: what a {name} is, and who has it."""

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import Owned, Record


class {name}(Owned, Record):
    __tablename__ = "{table}"
    # TODO: what no two of them have alike, or nothing; storage/conflicts.py says it to callers.
    __table_args__ = (UniqueConstraint("{key}", "{first}"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
{within}{members}'''
ONE_OF_EACH = '''"""TODO: what a {name} is. Each {record} has one at most."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, Session, mapped_column

from storage.columns import Owned, Record
{imported}
from storage.lookups import by_key


class {name}(Owned, Record):
    __tablename__ = "{table}"

    {record}_id: Mapped[str] = mapped_column(ForeignKey("{record}s.id"), primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organizations.id"), index=True)
{members}

def of_{record}(db: Session, {record}: {kind}) -> {name}:
    """Also where nobody ever replaced it; that one is in no table, and `replace` adds it."""
    found = by_key(db, {name}, {record}.id)
    return found or {name}({record}_id={record}.id, org_id={record}.org_id, {empty})


def replace(db: Session, {record}: {kind}, values: Mapping[str, Any]) -> {name}:
    replaced = of_{record}(db, {record})
{sets}    db.add(replaced)
    db.flush()
    return replaced
'''
FORGET = '''

def forget(db: Session, instance: Instance) -> None:
    """With an erased instance, its {table}."""
    db.execute(
        delete({name}).where(
            {name}.org_id == instance.org_id, {name}.instance_id == instance.id
        )
    )
'''
FORGOTTEN = "        {table}.forget(db, instance)\n"
FATE = '    "{table}": Fate(kept=None),  # TODO: or why it stays; handed_on, by _place_copy.\n'
ID_COLUMN = """
        sa.Column("id", sa.String(), nullable=False),"""
MIGRATION = '''"""TODO: what a {name} is."""

import sqlalchemy as sa
from alembic import op

from storage.columns import {types}

revision = "{revision}"
down_revision = "{before}"


def upgrade() -> None:
    op.create_table(
        "{table}",{own}
        sa.Column("org_id", sa.String(), nullable=False),{within}{members}
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
    # TODO: no secrets; times by handlers.instants.timestamp.
    return {{{members}}}
"""
