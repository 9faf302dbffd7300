"""The TLS context of probes. Certificates are always verified, by the system's authorities and an optional own one."""

import ssl
from pathlib import Path

from isochrone_agent.errors import SettingsError


def tls_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Build a context that verifies certificates and host names; `ca_file` adds authorities (PEM) to the system's.

    Build it once per process, because that can take longer than a handshake. Raises `SettingsError`.
    """
    context = ssl.create_default_context()
    if ca_file is None:
        return context
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        hint = "--ca-file needs a file of PEM certificates"
        raise SettingsError(f"cannot load {ca_file}: {error.strerror or error}", hint=hint) from error
    return context
