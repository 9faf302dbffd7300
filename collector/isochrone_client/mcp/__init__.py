"""The Model Context Protocol: an assistant's questions to a collector."""
