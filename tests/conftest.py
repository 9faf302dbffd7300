"""What tests can borrow: one fix_*.py per thing."""

pytest_plugins = [
    "fix_agent",
    "fix_collector",
    "fix_network",
    "fix_observatory",
    "fix_postgres",
    "fix_simulator",
    "fix_transformers",
]
