"""The optional gateway beside a service, which `isochrone gateway` starts; see docs/clients.md."""
