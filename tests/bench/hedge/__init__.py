"""Consumers of route tables, measured: hedged requests, Envoy, and LiteLLM with a dead first choice."""
