"""What these tests borrow."""

from fix_observatory import observatory

__all__ = ["observatory"]
