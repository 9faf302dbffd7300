"""The gRPC services: messages become values, errors become statuses."""
