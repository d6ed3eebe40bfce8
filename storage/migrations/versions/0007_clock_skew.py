"""How far the clock of a cell's host is from the database's."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("cells", sa.Column("clock_skew_s", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("cells", "clock_skew_s")
