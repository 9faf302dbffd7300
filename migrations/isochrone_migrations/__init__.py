"""Migrations of the collector's database, one revision after another.

Some rules keep both a single PostgreSQL and Citus possible: the distribution column and the time are in every key; no
sequences, triggers, PL/pgSQL, DEFAULT partitions or foreign keys between shards.
"""
