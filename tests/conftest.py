"""What tests can borrow: one fix_*.py per thing."""

import signal

pytest_plugins = [
    "fix_agent",
    "fix_browser",
    "fix_collector",
    "fix_inprocess_collector",
    "fix_network",
    "fix_observatory",
    "fix_postgres",
    "fix_simulator",
    "fix_transformers",
    "fix_web",
    "fix_webhook",
]

# A shell starts what runs in its background with Ctrl-C ignored, and so would be whatever the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
