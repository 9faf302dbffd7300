"""Drift: lasting changes in the level of a series."""
