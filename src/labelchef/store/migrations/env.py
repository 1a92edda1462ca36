"""Alembic's entry: run the steps on the connection that `migrate` hands over."""

from alembic import context

from labelchef.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
