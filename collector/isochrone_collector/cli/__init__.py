"""The commands of `isochrone-collector`, one module each, and the client and health checks that they use."""
