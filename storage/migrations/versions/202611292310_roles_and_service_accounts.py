"""Roles that organizations make or change, roles in projects, service accounts, support grants."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611292310"
down_revision = "202611292110"

TABLES = (
    "custom_roles",
    "role_assignments",
    "project_members",
    "service_accounts",
    "support_grants",
)


def upgrade() -> None:
    op.add_column("organizations", sa.Column("role_sets", Json, nullable=True))
    op.add_column(
        "users",
        sa.Column("is_support", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
    _roles()
    _project_members()
    _service_accounts()
    _support_grants()


def _create(table: str, *columns: Any) -> None:
    """With an id, the organization and the moment of creation."""
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        *columns,
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=nullable)


def _refers(
    table: str, columns: list[str], to: list[str], ondelete: str | None = None
) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_{'_'.join(columns)}")
    return sa.ForeignKeyConstraint(columns, to, name=name, ondelete=ondelete)


def _unique(table: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=op.f(f"uq_{table}_{'_'.join(columns)}"))


MEMBER = (["org_id", "user_id"], ["memberships.org_id", "memberships.user_id"], "CASCADE")
ORG = (["org_id"], ["organizations.id"])


def _roles() -> None:
    _create(
        "custom_roles",
        _text("name"),
        sa.Column("permissions", Json, nullable=False),
        _text("created_by"),
        _refers("custom_roles", *ORG),
        _unique("custom_roles", "org_id", "name"),
    )
    table = "role_assignments"
    _create(
        table,
        _text("role_id"),
        _text("user_id"),
        _text("team_id", nullable=True),
        _text("within"),
        _text("created_by"),
        _refers(table, ["role_id"], ["custom_roles.id"], "CASCADE"),
        _refers(table, ["team_id"], ["teams.id"], "CASCADE"),
        _refers(table, *MEMBER),
        _unique(table, "role_id", "user_id", "within"),
    )
    op.create_index(op.f(f"ix_{table}_org_id_user_id"), table, ["org_id", "user_id"])


def _project_members() -> None:
    table = "project_members"
    _create(
        table,
        _text("project_id"),
        _text("user_id"),
        _text("role"),
        sa.CheckConstraint(
            "role IN ('admin', 'developer', 'viewer')", name=op.f(f"ck_{table}_role")
        ),
        _refers(table, ["project_id"], ["projects.id"], "CASCADE"),
        _refers(table, *MEMBER),
        _unique(table, "project_id", "user_id"),
    )
    op.create_index(op.f(f"ix_{table}_org_id_user_id"), table, ["org_id", "user_id"])


def _service_accounts() -> None:
    table = "service_accounts"
    _create(
        table,
        _text("name"),
        _text("role"),
        _text("created_by"),
        sa.Column("disabled_at", Timestamp(), nullable=True),
        _refers(table, ["id"], ["users.id"]),
        _refers(table, *ORG),
        _unique(table, "org_id", "name"),
    )


def _support_grants() -> None:
    table = "support_grants"
    _create(
        table,
        sa.Column("permissions", Json, nullable=False),
        sa.Column("instance_ids", Json, nullable=True),
        _text("reason"),
        _text("created_by"),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        _refers(table, *ORG),
    )
    op.create_index(op.f(f"ix_{table}_org_id_id"), table, ["org_id", "id"])
    open_ = sa.text("revoked_at IS NULL")
    op.create_index(
        f"ix_{table}_open", table, ["org_id"], postgresql_where=open_, sqlite_where=open_
    )


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
    op.drop_column("users", "is_support")
    op.drop_column("organizations", "role_sets")
