"""The observatory: samples come in over gRPC, rest in PostgreSQL, and answers go out."""
