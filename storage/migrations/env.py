"""What Alembic runs around every migration: the connection comes from storage.migrations."""

from alembic import context

from storage.records import Record

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Record.metadata,
    compare_type=True,
)
context.run_migrations()
