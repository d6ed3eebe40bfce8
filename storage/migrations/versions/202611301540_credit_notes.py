"""Credit notes: kept with the invoices that they correct, and counted in them."""

import sqlalchemy as sa
from alembic import op

from storage.columns import Json, Timestamp

revision = "202611301540"
down_revision = "202611301530"

_IN_FORCE = sa.text(
    "kind = 'invoice' AND status <> 'void' AND credited_subtotal_cents < subtotal_cents"
)
_FIXED = (
    *("id", "org_id", "month", "number", "currency", "subtotal_cents", "credits_cents"),
    *("tax_category", "tax_rate", "tax_reason", "tax_cents", "total_cents", "issued_at", "due_at"),
    *("created_at", "lines", "credits", "issuer", "customer"),
)
_ADDED = ("kind", "corrects_id", "corrects", "reason", "refund_cents")
# What becomes of an open one, once.
_END = ("status", "paid_at", "paid_cents", "voided_at", "void_reason", "payment_failed_at")
_TOLD = "an invoice stays as it is: of an open one is noted that it is paid, or void"
_SUMS_TOLD = "what of an invoice is credited is the sum of its credit notes"


def upgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    _drop_triggers(is_postgresql)
    if is_postgresql:
        _add_columns()
    else:
        _rebuilt(_add_columns)
    op.create_index(
        "ix_invoices_in_force",
        "invoices",
        ["org_id", "month"],
        unique=True,
        postgresql_where=_IN_FORCE,
        sqlite_where=_IN_FORCE,
    )
    op.create_index(op.f("ix_invoices_corrects_id"), "invoices", ["corrects_id"])
    op.execute("UPDATE invoices SET paid_cents = total_cents WHERE status = 'paid'")
    _create_triggers(is_postgresql, (*_FIXED, *_ADDED), sums=True)


def downgrade() -> None:
    """Raises an error of the database where a credit note was made: its number is given."""
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    _drop_triggers(is_postgresql, sums=True)
    op.drop_index(op.f("ix_invoices_corrects_id"), "invoices")
    op.drop_index("ix_invoices_in_force", "invoices")
    if is_postgresql:
        _drop_columns()
    else:
        _rebuilt(_drop_columns)
    _create_triggers(is_postgresql, _FIXED, sums=False)


def _add_columns() -> None:
    with op.batch_alter_table("invoices") as table:
        table.drop_constraint(op.f("uq_invoices_org_id_month"), type_="unique")
        for name in ("credited_cents", "credited_subtotal_cents", "paid_cents", "refund_cents"):
            table.add_column(sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
        table.add_column(sa.Column("kind", sa.String(), nullable=False, server_default="invoice"))
        table.add_column(sa.Column("corrects_id", sa.String(), nullable=True))
        table.add_column(sa.Column("corrects", Json, nullable=True))
        table.add_column(sa.Column("reason", sa.String(), nullable=True))
        table.add_column(sa.Column("payment_failed_at", Timestamp(), nullable=True))
    # Apart from the columns: what is added has a default for the rows that are there, and no more.
    with op.batch_alter_table("invoices") as table:
        for name in ("credited_cents", "credited_subtotal_cents", "paid_cents", "refund_cents"):
            table.alter_column(name, existing_type=sa.BigInteger(), server_default=None)
        table.alter_column("kind", existing_type=sa.String(), server_default=None)
        table.create_foreign_key(
            op.f("fk_invoices_corrects_id"), "invoices", ["corrects_id"], ["id"]
        )
        for name, rule in _CHECKS.items():
            table.create_check_constraint(op.f(f"ck_invoices_{name}"), rule)


_CHECKS = {
    "kind": "kind IN ('invoice', 'credit_note')",
    "corrects_id": "(kind = 'credit_note') = (corrects_id IS NOT NULL)",
    "credited_cents": "credited_cents >= 0 AND credited_cents <= total_cents",
    "credited_subtotal_cents": (
        "credited_subtotal_cents >= 0 AND credited_subtotal_cents <= subtotal_cents"
    ),
    "refund_cents": "refund_cents >= 0 AND refund_cents <= total_cents",
}


def _drop_columns() -> None:
    with op.batch_alter_table("invoices") as table:
        for name in _CHECKS:
            table.drop_constraint(op.f(f"ck_invoices_{name}"), type_="check")
        table.drop_constraint(op.f("fk_invoices_corrects_id"), type_="foreignkey")
        for name in (
            *("kind", "corrects_id", "corrects", "reason", "refund_cents", "payment_failed_at"),
            *("credited_cents", "credited_subtotal_cents", "paid_cents"),
        ):
            table.drop_column(name)
        table.create_unique_constraint(op.f("uq_invoices_org_id_month"), ["org_id", "month"])


def _rebuilt(change: object) -> None:
    """SQLite changes a table by copying it, which nothing may refer to meanwhile."""
    assert callable(change)
    op.execute("CREATE TEMPORARY TABLE kept_documents AS SELECT * FROM invoice_documents")
    op.drop_table("invoice_documents")
    change()
    op.create_table(
        "invoice_documents",
        sa.Column("invoice_id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("pdf", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", Timestamp(), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_invoice_documents_org_id")
        ),
        sa.ForeignKeyConstraint(
            ["invoice_id"], ["invoices.id"], name=op.f("fk_invoice_documents_invoice_id")
        ),
        sa.PrimaryKeyConstraint("invoice_id", name=op.f("pk_invoice_documents")),
    )
    names = "invoice_id, org_id, pdf, created_at"
    kept = f"INSERT INTO invoice_documents ({names}) SELECT {names} FROM kept_documents"  # noqa: S608
    op.execute(kept)
    op.execute("DROP TABLE kept_documents")


def _drop_triggers(is_postgresql: bool, *, sums: bool = False) -> None:
    names = ["invoices_update", "invoices_delete"]
    if sums:
        names += ["invoices_count", "invoices_sums", "invoices_begin"]
    if is_postgresql:
        for name in names:
            op.execute(f"DROP TRIGGER {name} ON invoices")
        if sums:
            op.execute("DROP FUNCTION count_credit_note()")
            op.execute("DROP FUNCTION check_credited()")
        return
    for name in (*names, "invoice_documents_update", "invoice_documents_delete"):
        op.execute(f"DROP TRIGGER {name}")


def _create_triggers(is_postgresql: bool, fixed: tuple[str, ...], *, sums: bool) -> None:
    made = _postgresql if is_postgresql else _sqlite
    for statement in made(fixed, sums=sums):
        op.execute(sa.text(statement))


def _row(row: str, names: tuple[str, ...]) -> str:
    return f"({', '.join(f'{row}.{name}' for name in names)})"


def _changed(differs: str, fixed: tuple[str, ...], *, sums: bool) -> str:
    """When an update is refused; what of it is credited may change at any time."""
    kept = f"{_row('NEW', fixed)} {differs} {_row('OLD', fixed)}"
    if not sums:
        return f"{kept} OR OLD.status <> 'open'"
    ended = f"{_row('NEW', _END)} {differs} {_row('OLD', _END)}"
    return f"{kept} OR (OLD.status <> 'open' AND {ended})"


_COUNT = """
    UPDATE invoices SET credited_cents = credited_cents + NEW.total_cents,
            credited_subtotal_cents = credited_subtotal_cents + NEW.subtotal_cents
        WHERE id = NEW.corrects_id AND org_id = NEW.org_id AND currency = NEW.currency
            AND kind = 'invoice'
"""
_DIFFERS = """
    NEW.credited_cents <> (
        SELECT coalesce(sum(total_cents), 0) FROM invoices WHERE corrects_id = NEW.id
    ) OR NEW.credited_subtotal_cents <> (
        SELECT coalesce(sum(subtotal_cents), 0) FROM invoices WHERE corrects_id = NEW.id
    )
"""
_BEGINS = "NEW.credited_cents <> 0 OR NEW.credited_subtotal_cents <> 0"


def _sqlite(fixed: tuple[str, ...], *, sums: bool) -> list[str]:
    refused = [
        ("invoices_update BEFORE UPDATE ON invoices", _changed("IS NOT", fixed, sums=sums), _TOLD),
        ("invoices_delete BEFORE DELETE ON invoices", "true", _TOLD),
        ("invoice_documents_update BEFORE UPDATE ON invoice_documents", "true", _TOLD),
        ("invoice_documents_delete BEFORE DELETE ON invoice_documents", "true", _TOLD),
    ]
    if sums:
        refused += [
            ("invoices_sums AFTER UPDATE ON invoices", _DIFFERS, _SUMS_TOLD),
            ("invoices_begin AFTER INSERT ON invoices", _BEGINS, _SUMS_TOLD),
        ]
    made = [
        f"CREATE TRIGGER {begins} WHEN {when} BEGIN SELECT RAISE(ABORT, '{told}'); END"
        for begins, when, told in refused
    ]
    if sums:
        made.append(
            f"""
            CREATE TRIGGER invoices_count AFTER INSERT ON invoices WHEN NEW.kind = 'credit_note'
            BEGIN
                {_COUNT};
                SELECT RAISE(ABORT, 'there is no such invoice to credit') WHERE changes() = 0;
            END
            """
        )
    return made


def _postgresql(fixed: tuple[str, ...], *, sums: bool) -> list[str]:
    changed = _changed("IS DISTINCT FROM", fixed, sums=sums)
    made = [
        f"""
        CREATE TRIGGER invoices_update BEFORE UPDATE ON invoices FOR EACH ROW
            WHEN ({changed}) EXECUTE FUNCTION keep_invoices()
        """,
        """
        CREATE TRIGGER invoices_delete BEFORE DELETE ON invoices FOR EACH ROW
            EXECUTE FUNCTION keep_invoices()
        """,
    ]
    return [*made, *_postgresql_sums()] if sums else made


def _postgresql_sums() -> list[str]:
    return [
        f"""
        CREATE FUNCTION count_credit_note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            {_COUNT};
            IF NOT FOUND THEN
                RAISE EXCEPTION 'there is no such invoice to credit';
            END IF;
            RETURN NULL;
        END $$
        """,
        f"""
        CREATE FUNCTION check_credited() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF {_DIFFERS} THEN
                RAISE EXCEPTION '{_SUMS_TOLD}';
            END IF;
            RETURN NULL;
        END $$
        """,
        """
        CREATE TRIGGER invoices_count AFTER INSERT ON invoices FOR EACH ROW
            WHEN (NEW.kind = 'credit_note') EXECUTE FUNCTION count_credit_note()
        """,
        """
        CREATE TRIGGER invoices_sums AFTER UPDATE ON invoices FOR EACH ROW
            EXECUTE FUNCTION check_credited()
        """,
        f"""
        CREATE TRIGGER invoices_begin AFTER INSERT ON invoices FOR EACH ROW
            WHEN ({_BEGINS}) EXECUTE FUNCTION keep_invoices()
        """,
    ]
