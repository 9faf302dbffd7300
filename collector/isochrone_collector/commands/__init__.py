"""The subcommands of `isochrone-collector`, one module each."""
