"""Build, publish and watch route tables."""
