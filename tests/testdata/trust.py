"""The trust in the authorities of the operating system: reading them takes a while, so once per process."""

import ssl
from functools import cache


@cache
def system_trust() -> ssl.SSLContext:
    return ssl.create_default_context()
