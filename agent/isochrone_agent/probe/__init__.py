"""Probes: one request, its response stream with timestamps, and the resulting sample."""
