"""The plan in force and its rounds: fetch, limits, schedule, budgets and provider credentials."""
