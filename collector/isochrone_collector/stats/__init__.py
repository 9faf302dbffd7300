"""Estimators with their intervals. Pure: numbers in, numbers out, and `None` where n is too small to say."""
