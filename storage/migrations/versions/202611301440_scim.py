"""SCIM: tokens, the people and groups that are pushed, and the roles that groups give."""

import sqlalchemy as sa
from alembic import op

from storage.columns import DatabaseClock, Json, Timestamp

revision = "202611301440"
down_revision = "202611301430"

_KINDS = ("user", "api_key", "service_account", "system", "anonymous")
# As in 202611300750: what rights follow from tells of its changes.
_TOLD = {
    "scim_groups": "org_role, team_id, team_role",
    "scim_group_members": "group_id, user_id",
    "sso_group_claims": "group_id, user_id, connection_id",
}


def upgrade() -> None:
    _tokens()
    _users()
    _groups()
    _members()
    _tell()
    _allow_actors((*_KINDS[:3], "scim_token", *_KINDS[3:]))


def _tokens() -> None:
    op.create_table(
        "scim_tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("default_role", sa.String(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=True),
        sa.Column("last_used_at", Timestamp(), nullable=True),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_scim_tokens_org_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scim_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_scim_tokens_token_hash")),
    )
    op.create_index(op.f("ix_scim_tokens_org_id"), "scim_tokens", ["org_id"])


def _users() -> None:
    op.create_table(
        "scim_users",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("user_name_key", sa.String(), nullable=False),
        sa.Column("external_id", sa.String(), nullable=True),
        sa.Column("attributes", Json, nullable=False),
        sa.Column("made_account", sa.Boolean(), nullable=False),
        sa.Column("held", Json, nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_scim_users_org_id")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_scim_users_user_id")),
        sa.PrimaryKeyConstraint("org_id", "user_id", name=op.f("pk_scim_users")),
        sa.UniqueConstraint(
            "org_id", "user_name_key", name=op.f("uq_scim_users_org_id_user_name_key")
        ),
    )
    op.create_index(op.f("ix_scim_users_user_id"), "scim_users", ["user_id"])
    op.create_index(
        op.f("ix_scim_users_org_id_external_id"), "scim_users", ["org_id", "external_id"]
    )


def _groups() -> None:
    op.create_table(
        "scim_groups",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("display_name", sa.String(), nullable=False),
        sa.Column("name_key", sa.String(), nullable=False),
        sa.Column("external_id", sa.String(), nullable=True),
        sa.Column("is_pushed", sa.Boolean(), nullable=False),
        sa.Column("org_role", sa.String(), nullable=True),
        sa.Column("team_id", sa.String(), nullable=True),
        sa.Column("team_role", sa.String(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.CheckConstraint(
            "org_role IN ('admin', 'developer', 'member', 'auditor')",
            name=op.f("ck_scim_groups_org_role"),
        ),
        sa.CheckConstraint(
            "team_role IN ('admin', 'operator', 'viewer')", name=op.f("ck_scim_groups_team_role")
        ),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_scim_groups_org_id")
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["teams.id"], name=op.f("fk_scim_groups_team_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scim_groups")),
        sa.UniqueConstraint("org_id", "name_key", name=op.f("uq_scim_groups_org_id_name_key")),
    )
    op.create_index(op.f("ix_scim_groups_team_id"), "scim_groups", ["team_id"])
    op.create_index(
        op.f("ix_scim_groups_org_id_external_id"), "scim_groups", ["org_id", "external_id"]
    )


def _members() -> None:
    for table, of, more in (
        ("scim_group_members", "scim_users", ()),
        ("sso_group_claims", "memberships", ("connection_id",)),
    ):
        op.create_table(
            table,
            sa.Column("group_id", sa.String(), nullable=False),
            sa.Column("user_id", sa.String(), nullable=False),
            *(sa.Column(each, sa.String(), nullable=False) for each in more),
            sa.Column("org_id", sa.String(), nullable=False),
            sa.Column("created_at", Timestamp(), nullable=False),
            sa.ForeignKeyConstraint(
                ["group_id"],
                ["scim_groups.id"],
                name=op.f(f"fk_{table}_group_id"),
                ondelete="CASCADE",
            ),
            sa.ForeignKeyConstraint(
                ["org_id", "user_id"],
                [f"{of}.org_id", f"{of}.user_id"],
                name=op.f(f"fk_{table}_org_id_user_id"),
                ondelete="CASCADE",
            ),
            sa.PrimaryKeyConstraint("group_id", "user_id", *more, name=op.f(f"pk_{table}")),
        )
        op.create_index(op.f(f"ix_{table}_org_id_user_id"), table, ["org_id", "user_id"])


def _tell() -> None:
    dialect = op.get_bind().dialect
    clock = str(DatabaseClock().compile(dialect=dialect))
    act = (
        "EXECUTE FUNCTION tell_of_rights('org_id')"
        if dialect.name == "postgresql"
        else (
            "BEGIN INSERT INTO right_changes (whose, count, created_at)"  # noqa: S608 - of constants
            f" VALUES (OLD.org_id, 1, {clock}) ON CONFLICT (whose) DO UPDATE SET count = count + 1;"
            " END"
        )
    )
    for table, columns in _TOLD.items():
        for name, when in (("changed", f"UPDATE OF {columns}"), ("deleted", "DELETE")):
            trigger = f"CREATE TRIGGER {table}_rights_{name} AFTER {when} ON {table} FOR EACH ROW"
            op.execute(f"{trigger} {act}")


def _allow_actors(kinds: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    with op.batch_alter_table("audit") as table:
        table.drop_constraint(op.f("ck_audit_actor_kind"), type_="check")
        table.create_check_constraint(op.f("ck_audit_actor_kind"), f"actor_kind IN ({listed})")
    if op.get_bind().dialect.name == "sqlite":
        # Of two indexes that both serve, SQLite takes the one that was made last.
        waiting = sa.text("seq IS NULL")
        op.drop_index("ix_audit_unsealed", "audit")
        op.create_index("ix_audit_unsealed", "audit", ["org_id", "id"], sqlite_where=waiting)


def downgrade() -> None:
    op.execute("UPDATE audit SET actor_kind = 'system' WHERE actor_kind = 'scim_token'")
    _allow_actors(_KINDS)
    for table in ("sso_group_claims", "scim_group_members", "scim_groups", "scim_users"):
        op.drop_table(table)
    op.drop_table("scim_tokens")
