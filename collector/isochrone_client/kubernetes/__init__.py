"""Kubernetes: weights and priorities of route objects follow the route tables of a region."""
