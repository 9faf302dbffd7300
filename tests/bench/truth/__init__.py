"""The statistics on simulated series whose truth is known: `make bench-truth`."""
