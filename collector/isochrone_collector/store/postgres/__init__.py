"""The PostgreSQL server and its connections: pool, schema, statements, the embedded server."""
