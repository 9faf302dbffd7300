"""The wire contract between agents, the collector and its readers."""

__version__ = "0.1.0"
