"""Alembic's environment: migrations run on the connection, and in the transaction, of ``schema_version``."""

from __future__ import annotations

from alembic import context

from sweeps.service.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a column by rewriting its table
    transactional_ddl=True,  # true for SQLite too, since `engine` begins its transactions
)
with context.begin_transaction():
    context.run_migrations()
