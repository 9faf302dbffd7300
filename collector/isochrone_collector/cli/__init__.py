"""The commands of `isochrone-collector`, one module each, and the client and checks that they use."""
