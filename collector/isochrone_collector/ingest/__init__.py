"""Ingest of pushes: decode, validate, pack, and commit in groups."""
