"""Backups, restores, what owners chose of them, and instances whose data is being replaced."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611252359"
down_revision = "202611252320"

_BEFORE = (
    *("requested", "provisioning", "running", "pausing", "paused", "resuming", "resizing"),
    *("failed", "deleting", "deleted", "erasing", "erased"),
)
_AFTER = (*_BEFORE[:7], "restoring", *_BEFORE[7:])


def upgrade() -> None:
    _allow_statuses(_BEFORE, _AFTER)
    _create_backups()
    _create_restores()
    _create_settings()


def downgrade() -> None:
    for name in ("backup_settings", "restores", "backups"):
        op.drop_table(name)
    op.execute("UPDATE instances SET status = 'failed' WHERE status = 'restoring'")
    _allow_statuses(_AFTER, _BEFORE)


def _create_backups() -> None:
    op.create_table(
        "backups",
        *_owned(),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.String(), nullable=True),
        sa.Column("engine", sa.String(), nullable=False),
        sa.Column("engine_version", sa.String(), nullable=False),
        sa.Column("size", sa.String(), nullable=False),
        sa.Column("storage_bytes", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.Column("extensions", Json, nullable=True),
        sa.Column("verification", Json, nullable=True),
        sa.Column("slot", Timestamp(), nullable=True),
        sa.Column("requested_by", sa.String(), nullable=True),
        sa.Column("started_at", Timestamp(), nullable=True),
        sa.Column("completed_at", Timestamp(), nullable=True),
        sa.Column("dropped_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("backups", "kind", ("scheduled", "manual", "pre_change")),
        _one_of(
            "backups",
            "status",
            ("pending", "running", "completed", "failed", "deleting", "deleted"),
        ),
        *_references("backups", "instance_id"),
    )
    op.create_index("ix_backups_instance_id_id", "backups", ["instance_id", "id"])
    op.create_index("ix_backups_instance_id_slot", "backups", ["instance_id", "slot"], unique=True)
    op.create_index("ix_backups_org_id_slot", "backups", ["org_id", "slot"])
    _partial("ix_backups_completed", "status = 'completed'", "instance_id", "started_at")
    retained = "status = 'completed' AND kind != 'manual'"
    _partial("ix_backups_retained", retained, "instance_id", "completed_at")
    _partial("ix_backups_manual", "kind = 'manual'", "org_id")
    _partial("ix_backups_open", "status IN ('pending', 'running')", "instance_id", "id")
    to_drop = "dropped_at IS NULL AND status IN ('deleting', 'failed')"
    _partial("ix_backups_to_drop", to_drop, "instance_id", "id")


def _create_settings() -> None:
    op.create_table(
        "backup_settings",
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("frequency", sa.String(), nullable=True),
        sa.Column("retention_days", sa.Integer(), nullable=True),
        sa.Column("window_start", sa.String(), nullable=True),
        sa.Column("updated_by", sa.String(), nullable=True),
        sa.Column("updated_at", Timestamp(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        *_references("backup_settings", "instance_id", key="instance_id"),
    )


def _create_restores() -> None:
    op.create_table(
        "restores",
        *_owned(),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("target_instance_id", sa.String(), nullable=False),
        sa.Column("backup_id", sa.String(), nullable=False),
        sa.Column("pre_change_backup_id", sa.String(), nullable=True),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.String(), nullable=True),
        sa.Column("requested_by", sa.String(), nullable=True),
        sa.Column("started_at", Timestamp(), nullable=True),
        sa.Column("completed_at", Timestamp(), nullable=True),
        sa.Column("created_at", Timestamp(), nullable=False),
        _one_of("restores", "mode", ("new_instance", "in_place")),
        _one_of("restores", "status", ("pending", "running", "completed", "failed")),
        *_references("restores", "instance_id", "target_instance_id"),
    )
    op.create_index("ix_restores_instance_id_id", "restores", ["instance_id", "id"])
    op.create_index("ix_restores_target_instance_id_id", "restores", ["target_instance_id", "id"])
    _partial("ix_restores_open", "status IN ('pending', 'running')", "instance_id")


def _owned() -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(), nullable=False) for name in ("id", "org_id")]


def _references(table: str, *instances: str, key: str = "id") -> list[sa.Constraint]:
    def to(column: str, target: str) -> sa.Constraint:
        return sa.ForeignKeyConstraint([column], [target], name=op.f(f"fk_{table}_{column}"))

    return [
        to("org_id", "organizations.id"),
        *(to(column, "instances.id") for column in instances),
        sa.PrimaryKeyConstraint(key, name=op.f(f"pk_{table}")),
    ]


def _one_of(table: str, column: str, values: tuple[str, ...]) -> sa.CheckConstraint:
    return sa.CheckConstraint(_among(column, values), name=op.f(f"ck_{table}_{column}"))


def _among(column: str, values: tuple[str, ...]) -> str:
    listed = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({listed})"


def _partial(name: str, where: str, *columns: str) -> None:
    table = name.split("_")[1]
    op.create_index(
        *(name, table, list(columns)),
        postgresql_where=sa.text(where),
        sqlite_where=sa.text(where),
    )


def _allow_statuses(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    """Replace the constraint on the statuses of instances."""
    old, new = _among("status", before), _among("status", after)
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(op.f("ck_instances_status"), "instances", type_="check")
        op.create_check_constraint(op.f("ck_instances_status"), "instances", new)
        return
    # SQLite cannot alter a constraint, and the table is too referred to to be made anew. Its text
    # may be edited: what is stored stays the same (https://sqlite.org/lang_altertable.html, 7).
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    changed = connection.execute(
        sa.text(
            "UPDATE sqlite_schema SET sql = replace(sql, :old, :new)"
            " WHERE type = 'table' AND name = 'instances' AND instr(sql, :old) > 0"
        ),
        {"old": old, "new": new},
    )
    assert changed.rowcount == 1, "the constraint is not as the first revision wrote it"
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
