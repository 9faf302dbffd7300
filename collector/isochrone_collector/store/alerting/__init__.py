"""Alerts, the results of their delivery, and incidents of targets."""
