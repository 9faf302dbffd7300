"""The only rooms that talk to PostgreSQL. Nothing psycopg says or raises leaves this package untranslated."""
