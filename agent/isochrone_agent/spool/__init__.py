"""The spool: samples on disk until the collector has stored them."""
