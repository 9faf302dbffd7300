"""Alert rules, pure: what an alert contains, and when a vantage counts as absent."""
