"""The gRPC border, service by service: messages become values, errors become statuses, and nothing else happens."""
