"""Authentication, enrolment, rate limits and certificates."""
