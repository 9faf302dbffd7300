"""The HTTP interface for route tables: JSON, long polls and server-sent events. See docs/routing.md."""
