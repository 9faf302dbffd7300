"""The foundations: what the collector's database looks like, one revision after another.

`schema.sql` is the picture of the newest revision, kept true by tests/migration. Rules that keep one PostgreSQL and
Citus both possible: the distribution column and the time are in every key; no sequences, triggers, PL/pgSQL, DEFAULT
partitions or foreign keys between shards.
"""
