"""Route tables in the terms of gateways, for exports and for a collector that serves a gateway itself. Pure."""
