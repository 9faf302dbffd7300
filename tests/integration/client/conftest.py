"""Fixtures of the client's integration tests."""

from fix_observatory import observatory
from fix_routes import routing

__all__ = ["observatory", "routing"]
