"""Queries of readers: their windows, the order of rows, and answers as JSON documents."""
