"""What the cell tells of the certificates of domains."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("domains", sa.Column("certificate", Json, nullable=True))


def downgrade() -> None:
    op.drop_column("domains", "certificate")
