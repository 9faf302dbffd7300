"""Errors of routing.

RoutingError           base
└── TableError         the operator of the collector: it sent something else than route tables; the client ignores it
"""


class RoutingError(Exception):
    """Root of the tree."""


class TableError(RoutingError):
    """A document other than a route table, or one on which clients must not act."""
