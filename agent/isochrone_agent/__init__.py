"""The agent: probes LLM APIs from one vantage, and delivers the samples to the collector."""
