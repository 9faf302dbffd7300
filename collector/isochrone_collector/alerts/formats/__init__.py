"""Formats of receivers: a notification as an HTTP request, pure; one module per format."""
