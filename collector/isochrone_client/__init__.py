"""Whoever asks the collector: a typed client and the `isochrone` command."""
