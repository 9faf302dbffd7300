"""Differentials: from samples of two regions to a shift with its interval and decision."""
