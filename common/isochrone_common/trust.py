"""The verification of a collector: pinned certificates, or certificate authorities.

Plain text is allowed on loopback only. All other connections use TLS, and the collector is verified against one pinned
certificate (compared with the join token at enrolment), against certificate authorities from a file, or against the
system's. Credentials are sent over TLS only; over its Unix socket, and with `--trust-loopback`, the collector requires
none.
"""

import hashlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isochrone_common.address import Address

HANDSHAKE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """Paths of the client certificate and key (PEM, without a passphrase) for a collector that requires mTLS."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The rules by which a client verifies a collector.

    `roots` are certificate authorities (PEM); `None` stands for the system's. `server_name` is the name that the
    certificate must contain if it differs from the address. `next_certificate` (PEM) is accepted besides: the collector
    has announced it. `tls=False` means plain text, on loopback only.
    """

    tls: bool = True
    roots: str | None = None
    server_name: str | None = None
    next_certificate: str | None = None
    client: ClientCertificate | None = None

    @property
    def pins(self) -> tuple[str, ...]:
        """The certificates (PEM) that are accepted; empty where authorities verify the collector."""
        # Only `join` without authorities sets a name.
        found = (self.roots, self.next_certificate) if self.tls and self.roots and self.server_name else ()
        return tuple(pin for pin in found if pin)


PLAIN = Trust(tls=False)
SYSTEM = Trust()


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedCertificate:
    """A certificate presented by a collector: its PEM text, the SHA-256 of its DER form, and one of its names."""

    certificate: str
    fingerprint: bytes
    name: str

    @property
    def pinned(self) -> Trust:
        """A `Trust` that accepts this certificate only."""
        return Trust(roots=self.certificate, server_name=self.name)


def read_authorities(source: str) -> Trust:
    """Trust the authorities of a PEM file, or the system's if `source` is `system`. Raises `ValueError`."""
    if source == "system":
        return SYSTEM
    try:
        return Trust(roots=Path(source).read_text())
    except OSError as error:
        raise ValueError(f"cannot read {source}: {error.strerror}") from error


def client_certificate(certificate: Path | None, key: Path | None) -> ClientCertificate | None:
    """Return the client certificate, or `None` without files. Raises `ValueError` if only one of the two is given."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ValueError("--client-certificate and --client-key must be given together")
    return ClientCertificate(certificate=certificate.absolute(), key=key.absolute())


def require_private(address: Address, trust: Trust) -> None:
    """Raise `ValueError` for plain text to another machine."""
    if not trust.tls and not address.is_loopback:
        raise ValueError(f"{address} is another machine: plain text is allowed on loopback only")


def tls_context(trust: Trust) -> ssl.SSLContext:
    """The TLS context of an HTTP client; it names the collector by `trust.server_name`. Raises `ValueError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    try:
        if trust.roots is None:
            context.load_default_certs()
        else:
            _trust_only(context, "\n".join(trust.pins or [trust.roots]))
    except ssl.SSLError as error:
        raise ValueError(f"the collector's certificate cannot be read: {error.reason or error}") from error
    if trust.client is not None:
        try:
            context.load_cert_chain(trust.client.certificate, trust.client.key)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ValueError(f"cannot read the client certificate {trust.client.certificate}: {reason}") from error
    return context


def presented_certificate(address: Address) -> PresentedCertificate:
    """Return the certificate presented, unverified: only to compare its fingerprint. Raises `ValueError`, `OSError`."""
    der = _unverified_certificate(address)
    try:
        fields = _verified_fields(address, der)
    except ValueError:
        # The server may have switched to another certificate between the two connections.
        before, der = der, _unverified_certificate(address)
        if der == before:
            raise
        fields = _verified_fields(address, der)
    names = [str(name[1]) for name in fields.get("subjectAltName", ()) if len(name) > 1]
    if not names:
        raise ValueError(f"the certificate of {address} has no subject alternative name")
    # Any name that matches the wildcard is acceptable.
    name, certificate = names[0].replace("*", "collector"), ssl.DER_cert_to_PEM_cert(der)
    return PresentedCertificate(certificate=certificate, fingerprint=hashlib.sha256(der).digest(), name=name)


def speaks_tls(address: Address) -> bool:
    """Return whether a server with TLS answers at the address."""
    try:
        with _handshake(address, _look_context(None)):
            return True
    except (OSError, ValueError):
        return False


def _unverified_certificate(address: Address) -> bytes:
    with _handshake(address, _look_context(None)) as tls_socket:
        der = tls_socket.getpeercert(binary_form=True)
    if der is None:
        raise ValueError(f"{address} presents no certificate")
    return der


def _verified_fields(address: Address, der: bytes) -> Mapping[str, Any]:
    # The standard library parses verified certificates only, so the certificate is verified against itself.
    with _handshake(address, _look_context(ssl.DER_cert_to_PEM_cert(der))) as tls_socket:
        return tls_socket.getpeercert() or {}


@contextmanager
def _handshake(address: Address, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with socket.create_connection((address.host, address.port), HANDSHAKE_SECONDS) as tcp_socket:
        try:
            tls_socket = context.wrap_socket(tcp_socket)
        except ssl.SSLCertVerificationError as error:
            raise ValueError(f"the certificate of {address} cannot be used: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise ValueError(f"{address} does not speak TLS: {error.reason or error}") from error
        with tls_socket:
            yield tls_socket


def _look_context(certificate: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if certificate is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        _trust_only(context, certificate)
    return context


def _trust_only(context: ssl.SSLContext, certificates: str) -> None:
    """Trust these certificates (PEM), be they of authorities or of servers. Comments in them may have any letters."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificates.encode("ascii", "ignore").decode())
