"""Storage in PostgreSQL. No other package talks to the database, and no psycopg exception leaves this one."""
