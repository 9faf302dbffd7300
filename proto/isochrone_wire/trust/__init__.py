"""Enrolment, renewal of identities, and signatures of plans."""
