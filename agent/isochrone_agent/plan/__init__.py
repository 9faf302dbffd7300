"""The current plan and its rounds: plan watcher, limits, schedule, budgets and provider credentials."""
