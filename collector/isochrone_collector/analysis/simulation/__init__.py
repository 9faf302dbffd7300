"""Simulation of routing policies on recorded rounds."""
