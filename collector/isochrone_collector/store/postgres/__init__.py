"""Access to PostgreSQL: connections, schema, statements, and the embedded server."""
