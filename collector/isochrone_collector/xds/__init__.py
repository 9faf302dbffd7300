"""Route tables for Envoy over its discovery protocol (xDS v3): resources, the state of a stream, and their encoding."""
