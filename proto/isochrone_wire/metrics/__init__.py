"""Metrics for Prometheus, of agents and collectors."""
