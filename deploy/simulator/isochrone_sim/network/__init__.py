"""A wide-area network on one machine: regions in network namespaces, each a fixed round trip away from a hub.

This package uses the standard library only, so that any interpreter of the right version can run it.
"""
