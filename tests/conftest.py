"""Test fixtures: one fix_*.py per resource."""

import signal

pytest_plugins = [
    "fix_agent",
    "fix_browser",
    "fix_collector",
    "fix_inprocess_collector",
    "fix_network",
    "fix_observatory",
    "fix_postgres",
    "fix_routes",
    "fix_simulator",
    "fix_transformers",
    "fix_web",
    "fix_webhook",
]

# A shell starts background jobs with SIGINT ignored, which child processes of the tests would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
