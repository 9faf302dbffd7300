"""The alerts of a simulated fleet, compared with the faults that were injected."""
