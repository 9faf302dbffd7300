"""Faults: a table of names, and what each does to a response."""
