"""Plan documents in YAML, read by the collector and by an agent without one."""
