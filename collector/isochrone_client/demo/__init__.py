"""The whole system on this machine: a simulated world, a collector, agents in three regions, and what they find."""
