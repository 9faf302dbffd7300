"""The contract: what an agent, a collector and a reader may say to each other."""

__version__ = "0.1.0"
