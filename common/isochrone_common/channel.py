"""gRPC channels to a collector, and the verification of its identity.

Plain text is allowed on loopback only. All other connections use TLS, and the collector is verified against one pinned
certificate (compared with the join token at enrolment), against certificate authorities from a file, or against the
system's. Credentials are sent over TLS only; over its Unix socket, and with `--trust-loopback`, the collector requires
none.
"""

import functools
import hashlib
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from isochrone_common.address import Address

MAX_MESSAGE_BYTES = 8 << 20
CLIENT_PING_EVERY_MS = 30_000
SERVER_PING_TOLERANCE_MS = 20_000
MAX_CONNECTION_AGE_MS = 600_000
CONNECTION_GRACE_MS = 60_000

UNKNOWN_TARGETS_KEY = "isochrone-unknown-targets"
"""The key of the trailing metadata with the ids of unknown targets, separated by commas, of a refused push."""

_LIMITS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # gRPC inflates a message before it checks its size. The collector inflates requests itself, within the limit, and
    # never compresses its answers.
    ("grpc.per_message_decompression", 0),
]

CLIENT_OPTIONS: list[tuple[str, int]] = [
    *_LIMITS,
    ("grpc.keepalive_time_ms", CLIENT_PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 5_000),
]

SERVER_OPTIONS: list[tuple[str, int]] = [
    *_LIMITS,
    ("grpc.http2.min_ping_interval_without_data_ms", SERVER_PING_TOLERANCE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # Connections close after ten minutes plus or minus 10 % (chosen by gRPC), so that a fleet which connected at once
    # does not reconnect at once. The grace period is longer than any call may last. New connections pick up new
    # certificates and added collectors.
    ("grpc.max_connection_age_ms", MAX_CONNECTION_AGE_MS),
    ("grpc.max_connection_age_grace_ms", CONNECTION_GRACE_MS),
    # Before authentication a stream may hold one window. Probing the bandwidth would let windows grow to megabytes.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_concurrent_streams", 100),
    # For TCP, TLS and the first settings of HTTP/2; by default two minutes.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Without a call; agents send a heartbeat more often.
    ("grpc.max_connection_idle_ms", 120_000),
    # With port reuse, two collectors on one port would each silently receive half of the pushes.
    ("grpc.so_reuseport", 0),
]


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
    """Return trust in the authorities of the PEM file `source`, or of the system if `source` is `system`.

    Raises `ValueError` if the file cannot be read.
    """
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


def open_channel(
    address: Address, trust: Trust, credential: str | None = None, *, more: Sequence[tuple[str, int]] = ()
) -> grpc.Channel:
    """Open a blocking channel, with the gRPC options in `more` in addition to `CLIENT_OPTIONS`.

    Raises `ValueError` for plain text to another machine, and for a client certificate that cannot be read.
    """
    _check(address, trust)
    if not trust.tls:
        return grpc.insecure_channel(str(address), options=[*_options(address, trust), *more])
    options = [*_options(address, trust), *more]
    return grpc.secure_channel(str(address), _credentials(trust, credential), options=options)


def open_aio_channel(
    address: Address,
    trust: Trust,
    credential: str | None = None,
    *,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> grpc.aio.Channel:
    """Open a channel for asyncio, with `interceptors`. Raises the same errors as `open_channel`."""
    _check(address, trust)
    if not trust.tls:
        return grpc.aio.insecure_channel(str(address), options=_options(address, trust), interceptors=interceptors)
    credentials, options = _credentials(trust, credential), _options(address, trust)
    return grpc.aio.secure_channel(str(address), credentials, options=options, interceptors=interceptors)


def presented_certificate(address: Address) -> PresentedCertificate:
    """Return the certificate that `address` presents, unverified: use it only to compare its fingerprint.

    Raises `ValueError` if the server does not speak TLS or its certificate is unusable, `OSError` if the connection
    fails.
    """
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
        with _handshake(address, _tls_context(None)):
            return True
    except (OSError, ValueError):
        return False


def _unverified_certificate(address: Address) -> bytes:
    with _handshake(address, _tls_context(None)) as tls_socket:
        der = tls_socket.getpeercert(binary_form=True)
    if der is None:
        raise ValueError(f"{address} presents no certificate")
    return der


def _verified_fields(address: Address, der: bytes) -> Mapping[str, Any]:
    # The standard library parses verified certificates only, so the certificate is verified against itself.
    with _handshake(address, _tls_context(ssl.DER_cert_to_PEM_cert(der))) as tls_socket:
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


def _tls_context(certificate: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if certificate is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=certificate)
    return context


def _check(address: Address, trust: Trust) -> None:
    if not trust.tls and not address.is_loopback:
        raise ValueError(f"{address} is another machine: plain text is allowed on loopback only")


def _credentials(trust: Trust, credential: str | None) -> grpc.ChannelCredentials:
    roots = "\n".join(trust.pins or [trust.roots]).encode() if trust.roots else _system_roots()
    key, chain = _client_pair(trust.client) if trust.client else (None, None)
    channel = grpc.ssl_channel_credentials(root_certificates=roots, private_key=key, certificate_chain=chain)
    if credential is None:
        return channel
    return grpc.composite_channel_credentials(channel, grpc.access_token_call_credentials(credential))


def _client_pair(client: ClientCertificate) -> tuple[bytes, bytes]:
    try:
        return client.key.read_bytes(), client.certificate.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the client certificate: {error.filename}: {error.strerror}") from error


@functools.cache
def _system_roots() -> bytes | None:
    """Return the system's authorities (PEM), or `None` (gRPC's built-in list) if they are not in one file."""
    found = ssl.get_default_verify_paths().cafile
    for path in (found, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"):
        if path and Path(path).is_file():
            return Path(path).read_bytes()
    return None


def _options(address: Address, trust: Trust) -> list[tuple[str, int | str]]:
    override = [("grpc.ssl_target_name_override", trust.server_name)] if trust.server_name else []
    # gRPC would ask the proxy in `http_proxy` for a connection to this machine.
    proxy = [("grpc.enable_http_proxy", 0)] if address.is_loopback else []
    return [*CLIENT_OPTIONS, *override, *proxy]
