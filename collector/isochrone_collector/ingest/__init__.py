"""Ingest of pushes: decode, validate, encode, and commit in groups."""
