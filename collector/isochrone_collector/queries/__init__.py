"""Queries of readers, one module each: SQL selects, pure modules estimate."""
