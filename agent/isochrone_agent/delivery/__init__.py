"""Delivery of batches to the collector over gRPC, each until it is acknowledged."""
