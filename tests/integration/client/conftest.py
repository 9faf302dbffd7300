"""What these tests borrow."""

from fix_observatory import observatory
from fix_routes import routing

__all__ = ["observatory", "routing"]
