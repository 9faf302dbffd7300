"""Periodic work that the leading collector does: partitions, rollup, retention, drift, alerts."""
