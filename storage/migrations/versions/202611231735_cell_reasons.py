"""What a cell tells of an instance that runs, beside what became of the last request."""

import sqlalchemy as sa
from alembic import op

revision = "202611231735"
down_revision = "202611230800"


def upgrade() -> None:
    op.add_column("instances", sa.Column("cell_reason", sa.String(), nullable=True))
    # Told by the cell so far: it would be told twice.
    op.execute(
        "UPDATE instances SET cell_reason = status_reason, status_reason = NULL"
        " WHERE status = 'running' AND status_reason LIKE 'started again%'"
    )


def downgrade() -> None:
    op.execute(
        "UPDATE instances SET status_reason = cell_reason"
        " WHERE status_reason IS NULL AND cell_reason LIKE 'started again%'"
    )
    op.drop_column("instances", "cell_reason")
