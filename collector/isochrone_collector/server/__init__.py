"""Composition of the collector: its parts, its ports, and the order in which they start and stop."""
