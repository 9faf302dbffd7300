"""Estimators with their intervals. Pure; `None` where n is too small for an estimate."""
