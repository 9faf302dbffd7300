"""The commands of `isochrone-agent`, one module each, and the checks and output that they use."""
