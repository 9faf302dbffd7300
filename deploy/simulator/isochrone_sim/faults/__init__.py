"""Faults: a table of names, each with its transformation of a response script."""
