"""The simulated world: regions, models, load, token timing, and the published figures."""
