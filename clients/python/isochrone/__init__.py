"""Isochrone for services: `isochrone.routing` sends requests to the endpoints that the route tables name."""
