"""The first schema: every table of the control plane."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "0001"
down_revision = None

# In an order in which they can be dropped.
TABLES = (
    "samples events changes instances sessions projects memberships audit api_keys "
    "work users replays rate_windows organizations cells"
)


def upgrade() -> None:
    _cells()
    _organizations()
    _rate_windows()
    _replays()
    _users()
    _work()
    _api_keys()
    _audit()
    _memberships()
    _projects()
    _sessions()
    _instances()
    _instance_indexes()
    _changes()
    _events()
    _samples()


def downgrade() -> None:
    for table in TABLES.split():
        op.drop_table(table)


def _cells() -> None:
    op.create_table(
        "cells",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("public_url", sa.String(), nullable=False),
        sa.Column("instance_domain", sa.String(), nullable=False),
        sa.Column("ports", Json, nullable=False),
        sa.Column("engines", Json, nullable=False),
        sa.Column("ca_root_pem", sa.String(), nullable=True),
        sa.Column("ca_chain_pem", sa.String(), nullable=True),
        sa.Column("last_seen_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cells"),
    )
    op.create_index("ix_cells_region", "cells", ["region"], unique=False)


def _organizations() -> None:
    op.create_table(
        "organizations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False),
        sa.Column("default_region", sa.String(), nullable=True),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("require_mfa", sa.Boolean(), nullable=False),
        sa.Column("closed_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("organizations", "plan", "free solo team enterprise"),
        _one_of("organizations", "status", "open closed"),
        sa.PrimaryKeyConstraint("id", name="pk_organizations"),
        sa.UniqueConstraint("slug", name="uq_organizations_slug"),
    )


def _rate_windows() -> None:
    # Counted on every request and worth nothing after a minute: not worth the write-ahead log.
    unlogged = ["UNLOGGED"] if op.get_bind().dialect.name == "postgresql" else []
    op.create_table(
        "rate_windows",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("hits", sa.LargeBinary(), nullable=False),
        sa.Column("last_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_rate_windows"),
        prefixes=unlogged,
    )
    op.create_index("ix_rate_windows_last_at", "rate_windows", ["last_at"], unique=False)


def _replays() -> None:
    op.create_table(
        "replays",
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_sha256", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("headers", Json, nullable=True),
        sa.Column("body_sealed", sa.LargeBinary(), nullable=True),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("replays", "state", "in_flight done"),
        sa.PrimaryKeyConstraint("scope", "operation", "key", name="pk_replays"),
    )
    op.create_index("ix_replays_expires_at", "replays", ["expires_at"], unique=False)


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("password_hash", sa.String(), nullable=True),
        sa.Column("totp_secret_sealed", sa.LargeBinary(), nullable=True),
        sa.Column("totp_confirmed_at", Timestamp(), nullable=True),
        sa.Column("totp_last_step", sa.Integer(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("email", name="uq_users_email"),
    )


def _work() -> None:
    op.create_table(
        "work",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("lane", sa.String(), nullable=False),
        sa.Column("args", Json, nullable=False),
        sa.Column("steps", Json, nullable=False),
        sa.Column("due", Timestamp(), nullable=True),
        sa.Column("deadline", Timestamp(), nullable=True),
        sa.Column("lease", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("schedule", sa.String(), nullable=True),
        sa.Column("slot", Timestamp(), nullable=True),
        sa.Column("finished_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("work", "state", "waiting running done failed"),
        sa.PrimaryKeyConstraint("seq", name="pk_work"),
        sa.UniqueConstraint("operation", name="uq_work_operation"),
        sa.UniqueConstraint("schedule", "slot", name="uq_work_schedule_slot"),
    )
    op.create_index(
        "ix_work_due",
        "work",
        ["due"],
        unique=False,
        postgresql_where=sa.text("due IS NOT NULL"),
        sqlite_where=sa.text("due IS NOT NULL"),
    )
    op.create_index(
        "ix_work_lane",
        "work",
        ["lane", "seq"],
        unique=False,
        postgresql_where=sa.text("due IS NOT NULL"),
        sqlite_where=sa.text("due IS NOT NULL"),
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("scopes", Json, nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("service_account_id", sa.String(), nullable=True),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=True),
        sa.Column("last_used_at", Timestamp(), nullable=True),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.Column("suspended_at", Timestamp(), nullable=True),
        sa.Column("suspended_reason", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name="fk_api_keys_created_by"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_api_keys_org_id"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("token_hash", name="uq_api_keys_token_hash"),
    )
    op.create_index("ix_api_keys_org_id", "api_keys", ["org_id"], unique=False)


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("actor_kind", sa.String(), nullable=False),
        sa.Column("actor_id", sa.String(), nullable=True),
        sa.Column("target", sa.String(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("ip", sa.String(), nullable=True),
        sa.Column("detail", Json, nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("audit", "actor_kind", "user api_key service_account system anonymous"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_audit_org_id"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_org_id_id", "audit", ["org_id", "id"], unique=False)


def _memberships() -> None:
    op.create_table(
        "memberships",
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_memberships_org_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_memberships_user_id"),
        sa.PrimaryKeyConstraint("org_id", "user_id", name="pk_memberships"),
    )
    op.create_index("ix_memberships_user_id", "memberships", ["user_id"], unique=False)


def _projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_projects_org_id"),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
        sa.UniqueConstraint("org_id", "slug", name="uq_projects_org_id_slug"),
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("expires_at", Timestamp(), nullable=False),
        sa.Column("last_used_at", Timestamp(), nullable=True),
        sa.Column("mfa_at", Timestamp(), nullable=True),
        sa.Column("revoked_at", Timestamp(), nullable=True),
        sa.Column("user_agent", sa.String(), nullable=True),
        sa.Column("ip", sa.String(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_sessions_user_id"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.UniqueConstraint("token_hash", name="uq_sessions_token_hash"),
    )
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"], unique=False)
    op.create_index("ix_sessions_revoked_at", "sessions", ["revoked_at"], unique=False)
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"], unique=False)


def _instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("engine_version", sa.String(), nullable=False),
        sa.Column("size", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=False),
        sa.Column("placement", sa.String(), nullable=False),
        sa.Column("storage_bytes", sa.BigInteger(), nullable=False),
        sa.Column("maintenance_window", Json, nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.String(), nullable=True),
        sa.Column("desired_status", sa.String(), nullable=False),
        sa.Column("paused_by", sa.String(), nullable=True),
        sa.Column("branch_of", sa.String(), nullable=True),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("cell_id", sa.String(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=True),
        sa.Column("purge_after", Timestamp(), nullable=True),
        sa.Column("ready_at", Timestamp(), nullable=True),
        sa.Column("updated_at", Timestamp(), nullable=False),
        sa.Column("credentials_generation", sa.Integer(), nullable=False),
        sa.Column("credentials_overlap_until", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("instances", "desired_status", "running paused deleted erased"),
        _one_of("instances", "paused_by", "user idle"),
        _one_of("instances", "placement", "shared secure"),
        _one_of(
            "instances",
            "status",
            "requested provisioning running pausing paused resuming resizing failed "
            "deleting deleted erasing erased",
        ),
        sa.ForeignKeyConstraint(["cell_id"], ["cells.id"], name="fk_instances_cell_id"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_instances_org_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_instances_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_instances"),
        sa.UniqueConstraint("host", name="uq_instances_host"),
    )


def _instance_indexes() -> None:
    op.create_index(
        "ix_instances_live_name",
        "instances",
        ["project_id", "name"],
        unique=True,
        postgresql_where=sa.text("desired_status IN ('running', 'paused')"),
        sqlite_where=sa.text("desired_status IN ('running', 'paused')"),
    )
    for columns in (["cell_id"], ["status"], ["org_id", "id"], ["project_id", "id"]):
        op.create_index("ix_instances_" + "_".join(columns), "instances", columns)


def _changes() -> None:
    op.create_table(
        "changes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("old", Json, nullable=False),
        sa.Column("new", Json, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("requested_by", sa.String(), nullable=True),
        sa.Column("applied_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("changes", "kind", "size storage engine_version placement maintenance_window name"),
        _one_of("changes", "status", "pending applied failed"),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_changes_instance_id"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_changes_org_id"),
        sa.PrimaryKeyConstraint("id", name="pk_changes"),
    )
    op.create_index("ix_changes_instance_id_id", "changes", ["instance_id", "id"], unique=False)


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("time", Timestamp(), nullable=False),
        sa.Column("instance_id", sa.String(), nullable=True),
        sa.Column("data", Json, nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_events_instance_id"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_events_org_id"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_instance_id_id", "events", ["instance_id", "id"], unique=False)
    op.create_index("ix_events_org_id_id", "events", ["org_id", "id"], unique=False)


def _samples() -> None:
    op.create_table(
        "samples",
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("hour", Timestamp(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("storage_bytes", sa.BigInteger(), nullable=False),
        sa.Column("connections_max", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("cpu_s", sa.Double(), nullable=False),
        sa.Column("running_s", sa.Double(), nullable=False),
        sa.Column("seen_at", Timestamp(), nullable=False),
        sa.Column("cpu_s_seen", sa.Double(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_samples_instance_id"),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_samples_org_id"),
        sa.PrimaryKeyConstraint("instance_id", "hour", name="pk_samples"),
    )
    op.create_index("ix_samples_org_id", "samples", ["org_id"], unique=False)


def _one_of(table: str, column: str, values: str) -> sa.CheckConstraint:
    """A CHECK on an enumeration, its values separated by spaces."""
    listed = ", ".join(f"'{value}'" for value in values.split())
    return sa.CheckConstraint(f"{column} IN ({listed})", name=op.f(f"ck_{table}_{column}"))
