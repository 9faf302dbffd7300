"""Renewal of identities, and signatures of plans."""
