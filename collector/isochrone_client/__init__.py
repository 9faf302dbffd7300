"""The reading side: a typed client of the collector and the `isochrone` command."""
