"""Migrations of a single file: the table that it becomes."""

import sqlalchemy as sa
from alembic import op

revision = "202611280750"
down_revision = "202611280300"


def upgrade() -> None:
    op.add_column("migrations", sa.Column("source_table", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("migrations", "source_table")
