"""Which key a key was created with: it ends with that one.

For those there are, the audit log knows, as far back as it is kept.
"""

import sqlalchemy as sa
from alembic import op

revision = "202611230048"
down_revision = "202611230010"

KEYS = sa.table("api_keys", *map(sa.column, ("id", "org_id", "created_by_key_id")))
AUDIT = sa.table("audit", *map(sa.column, ("org_id", "action", "actor_kind", "actor_id", "target")))


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("created_by_key_id", sa.String(), nullable=True))
    op.create_index("ix_api_keys_created_by_key_id", "api_keys", ["created_by_key_id"])
    connection = op.get_bind()
    by_keys = sa.select(AUDIT.c.org_id, AUDIT.c.target, AUDIT.c.actor_id).where(
        AUDIT.c.action == "api_key.create", AUDIT.c.actor_kind == "api_key"
    )
    for org_id, key_id, parent_id in connection.execute(by_keys).all():
        connection.execute(
            sa.update(KEYS)
            .where(KEYS.c.id == key_id, KEYS.c.org_id == org_id)
            .values(created_by_key_id=parent_id)
        )


def downgrade() -> None:
    op.drop_index("ix_api_keys_created_by_key_id", "api_keys")
    op.drop_column("api_keys", "created_by_key_id")
