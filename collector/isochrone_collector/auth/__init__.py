"""Authentication, enrolment and rate limits."""
