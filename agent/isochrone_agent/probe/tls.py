"""Whom a TLS handshake believes: the system's authorities, and one of your own beside them. Always somebody."""

import ssl
from pathlib import Path

from isochrone_agent.errors import SettingsError


def tls_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """A context that verifies certificates and host names; `ca_file` adds authorities (PEM) to the system's.

    Built once per process: it takes longer than many a handshake. Raises `SettingsError`.
    """
    context = ssl.create_default_context()
    if ca_file is None:
        return context
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        hint = "--ca-file wants a file of PEM certificates"
        raise SettingsError(f"{ca_file} cannot be used: {error.strerror or error}", hint=hint) from error
    return context
