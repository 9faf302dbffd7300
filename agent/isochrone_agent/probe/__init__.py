"""Probes: one request, its stream, its timestamps, and the sample they give."""
