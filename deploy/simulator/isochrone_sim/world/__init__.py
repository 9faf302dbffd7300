"""The simulated world: regions, models, load and pace, and the published figures."""
