"""Statistics on simulated series with a true value: `make bench-truth`."""
