"""Accounts that were made for people of an identity provider, counted for a day."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Timestamp

revision = "202611301657"
down_revision = "202611301656"

_TABLE = "sso_made_accounts"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("made_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name=op.f(f"fk_{_TABLE}_org_id")),
        sa.PrimaryKeyConstraint("user_id", name=op.f(f"pk_{_TABLE}")),
    )
    op.create_index(op.f(f"ix_{_TABLE}_org_id_made_at"), _TABLE, ["org_id", "made_at"])
    op.create_index(op.f(f"ix_{_TABLE}_place_made_at"), _TABLE, ["place", "made_at"])
    op.create_index(op.f(f"ix_{_TABLE}_made_at"), _TABLE, ["made_at"])


def downgrade() -> None:
    op.drop_table(_TABLE)
