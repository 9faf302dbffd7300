"""Routing rules, pure: from evidence to a route table."""
