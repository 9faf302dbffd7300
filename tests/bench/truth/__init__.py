"""Simulations with known truth."""
