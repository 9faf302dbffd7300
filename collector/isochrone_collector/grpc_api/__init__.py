"""The gRPC services: they decode requests, encode answers, and map errors to statuses."""
