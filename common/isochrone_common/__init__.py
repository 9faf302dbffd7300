"""Code that several rooms need and the contract does not: connections, credentials, metrics, command-line helpers."""
