"""What a cell's machine has in all; NULL until the cell has told it."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("cells", sa.Column("capacity", Json, nullable=True))


def downgrade() -> None:
    op.drop_column("cells", "capacity")
