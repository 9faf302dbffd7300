"""Periodic jobs: leader election, the registry, and the jobs of the leader."""
