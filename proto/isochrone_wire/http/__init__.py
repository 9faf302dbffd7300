"""HTTP that agents and clients of providers share. Pure."""
