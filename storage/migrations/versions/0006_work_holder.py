"""Who holds an operation, so that others notice when that worker is gone."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("work", sa.Column("holder", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("work", "holder")
