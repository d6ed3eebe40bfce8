"""What a cell hosts is found without reading what was erased, which stays for the accounts."""

import sqlalchemy as sa
from alembic import op

revision = "202611230052"
down_revision = "202611230048"


def upgrade() -> None:
    held = sa.text("status != 'erased'")
    op.create_index(
        "ix_instances_hosted", "instances", ["cell_id"], postgresql_where=held, sqlite_where=held
    )
    op.drop_index("ix_instances_cell_id", table_name="instances")


def downgrade() -> None:
    op.create_index("ix_instances_cell_id", "instances", ["cell_id"])
    op.drop_index("ix_instances_hosted", table_name="instances")
