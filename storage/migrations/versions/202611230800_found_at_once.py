"""What each order asks is found without reading what was erased, or what was changed long ago."""

import sqlalchemy as sa
from alembic import op

revision = "202611230800"
down_revision = "202611230115"

_PARTIAL = (
    ("ix_instances_org_hosted", "instances", ["org_id", "id"], "status != 'erased'"),
    ("ix_instances_project_hosted", "instances", ["project_id", "id"], "status != 'erased'"),
    ("ix_changes_pending", "changes", ["instance_id", "id"], "status = 'pending'"),
    ("ix_work_finished", "work", ["finished_at"], "due IS NULL"),
)


def upgrade() -> None:
    for name, table, columns, which in _PARTIAL:
        where = sa.text(which)
        op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)


def downgrade() -> None:
    for name, table, _, _ in _PARTIAL:
        op.drop_index(name, table_name=table)
