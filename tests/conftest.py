"""What tests can borrow: one fix_*.py per thing."""

pytest_plugins = [
    "fix_agent",
    "fix_browser",
    "fix_collector",
    "fix_insides",
    "fix_network",
    "fix_observatory",
    "fix_postgres",
    "fix_simulator",
    "fix_transformers",
    "fix_web",
    "fix_webhook",
]
