"""Routing: from evidence to a route table.

Pure: instants come in as arguments, and the same inputs give the same bytes.
"""
