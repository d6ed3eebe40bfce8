"""Incremental backups: of each one how it was made, and which one it builds on."""

import sqlalchemy as sa
from alembic import op

revision = "202611290100"
down_revision = "202611280750"


def upgrade() -> None:
    for name in ("method", "parent_id"):
        op.add_column("backups", sa.Column(name, sa.String(), nullable=True))


def downgrade() -> None:
    for name in ("parent_id", "method"):
        op.drop_column("backups", name)
