"""The TLS context of probes, and the reasons of failed handshakes.

Certificates are always verified, by the system's authorities and an optional own one.
"""

import re
import ssl
from pathlib import Path

from isochrone_agent.errors import SettingsError
from isochrone_agent.url import SPEAKS_HTTP

# A status line, and the page that a server sends to a client that it takes for one of HTTP/0.9.
_PLAIN_ANSWERS = (b"HTTP/", b"<")
_IF_HTTP = "if it speaks plain HTTP, try http://"
# The types of an alert and of a handshake record, each followed by the major version of TLS.
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
# The bodies of nginx, Apache and Go for a plain request to a port with TLS.
_TLS_EXPECTED = re.compile(rb"plain HTTP (request )?(was sent )?to|HTTP request to an HTTPS server")


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


def handshake_problem(error: Exception, received: bytes) -> str:
    """Return why a handshake failed; `received` are the first bytes that the server sent, if any."""
    if received.startswith(_PLAIN_ANSWERS):
        return SPEAKS_HTTP
    if received and getattr(error, "reason", None) == "WRONG_VERSION_NUMBER":
        return f"this port does not speak TLS; {_IF_HTTP}"
    if isinstance(error, ssl.SSLEOFError):
        return f"the server closed the connection during the handshake; {_IF_HTTP}"
    return tls_reason(error) if isinstance(error, ssl.SSLError) else str(error)


def tls_reason(error: ssl.SSLError) -> str:
    """Return the reason of a TLS error, such as the fault of the certificate."""
    return getattr(error, "verify_message", "") or error.reason or str(error)


def is_tls_record(received: bytes) -> bool:
    """Return true if the first bytes of an answer are those of TLS, as from a server that expected a handshake."""
    return received.startswith(_TLS_RECORDS)


def expects_tls(body: bytes) -> bool:
    """Return true if the body of a refusal states that the port speaks TLS."""
    return _TLS_EXPECTED.search(body) is not None
