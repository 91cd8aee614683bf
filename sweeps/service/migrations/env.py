"""Run by Alembic for a migration: on the connection, and within the transaction, of ``schema_version``."""

from __future__ import annotations

from alembic import context

from sweeps.service.database import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables,
    render_as_batch=True,  # SQLite changes a column by writing its table anew
    transactional_ddl=True,  # SQLite's is, as `database` begins its transactions
)
with context.begin_transaction():
    context.run_migrations()
