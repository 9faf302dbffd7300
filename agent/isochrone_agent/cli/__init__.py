"""The commands of `isochrone-agent`, one module each, with their health checks and table output."""
