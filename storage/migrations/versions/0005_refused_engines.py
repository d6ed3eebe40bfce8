"""The engines that a cell cannot run, and what would help."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("cells", sa.Column("refused", Json, nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("cells", "refused")
