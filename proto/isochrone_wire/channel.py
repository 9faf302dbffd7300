"""Channels to a collector, and how one knows that it is the right collector.

Plain text is for loopback only. Everywhere else TLS is spoken, and the collector is known by one certificate (pinned:
what whoever joined compared with the token), by authorities of one's own, or by the system's. A credential travels
under TLS and never without: where plain text is spoken nobody asks for one.
"""

import functools
import hashlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from isochrone_wire.address import Address
from isochrone_wire.grpc_options import CLIENT_OPTIONS

HANDSHAKE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """Where the certificate and key (PEM, without a passphrase) are that a collector asks for when it speaks mTLS."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How a collector is known. Without `roots` (PEM) by the system's authorities; `server_name` is the name its
    certificate must hold where that is not the address. `tls=False` is plain text, which needs no trust on loopback.
    """

    tls: bool = True
    roots: str | None = None
    server_name: str | None = None
    client: ClientCertificate | None = None


PLAIN = Trust(tls=False)
SYSTEM = Trust()


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedCertificate:
    """A certificate as a collector presents it: PEM, the SHA-256 of its DER, and a name that it holds."""

    certificate: str
    fingerprint: bytes
    name: str

    @property
    def pinned(self) -> Trust:
        """Trust in this certificate and no other."""
        return Trust(roots=self.certificate, server_name=self.name)


def read_authorities(source: str) -> Trust:
    """Trust in the authorities of a PEM file, or in the `system`'s. Raises `ValueError` when it cannot be read."""
    if source == "system":
        return SYSTEM
    try:
        return Trust(roots=Path(source).read_text())
    except OSError as error:
        raise ValueError(f"{source} cannot be read: {error.strerror}") from error


def client_certificate(certificate: Path | None, key: Path | None) -> ClientCertificate | None:
    """Both files, or neither. Raises `ValueError` for one alone."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ValueError("--client-certificate and --client-key go together")
    return ClientCertificate(certificate=certificate.absolute(), key=key.absolute())


def open_channel(
    address: Address, trust: Trust, credential: str | None = None, *, more: Sequence[tuple[str, int]] = ()
) -> grpc.Channel:
    """A channel whose calls wait for their answer, with `more` gRPC options beside those of `habits`.

    Raises `ValueError` for plain text to another machine, and for a client certificate that cannot be read.
    """
    _check(address, trust)
    if not trust.tls:
        return grpc.insecure_channel(str(address), options=[*CLIENT_OPTIONS, *more])
    return grpc.secure_channel(str(address), _credentials(trust, credential), options=[*_options(trust), *more])


def open_aio_channel(
    address: Address,
    trust: Trust,
    credential: str | None = None,
    *,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> grpc.aio.Channel:
    """A channel for an event loop. Raises as `open_channel`."""
    _check(address, trust)
    if not trust.tls:
        return grpc.aio.insecure_channel(str(address), options=CLIENT_OPTIONS, interceptors=interceptors)
    credentials = _credentials(trust, credential)
    return grpc.aio.secure_channel(str(address), credentials, options=_options(trust), interceptors=interceptors)


def presented_certificate(address: Address) -> PresentedCertificate:
    """What `address` presents, believed by nobody yet: only for comparing its fingerprint.

    Raises `ValueError` when no TLS is spoken there or the certificate is of no use, `OSError` when nobody answers.
    """
    with _handshake(address, _tls_context(None)) as tls_socket:
        der = tls_socket.getpeercert(binary_form=True)
    if der is None:
        raise ValueError(f"{address} presents no certificate")
    certificate = ssl.DER_cert_to_PEM_cert(der)
    # Only a verified certificate is taken apart by the standard library, so it vouches for itself.
    with _handshake(address, _tls_context(certificate)) as tls_socket:
        fields = tls_socket.getpeercert() or {}
    names = [str(name[1]) for name in fields.get("subjectAltName", ()) if len(name) > 1]
    if not names:
        raise ValueError(f"the certificate of {address} holds no name; it needs a subject alternative name")
    # Any name that the wildcard covers will do.
    name = names[0].replace("*", "collector")
    return PresentedCertificate(certificate=certificate, fingerprint=hashlib.sha256(der).digest(), name=name)


@contextmanager
def _handshake(address: Address, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    with socket.create_connection((address.host, address.port), HANDSHAKE_SECONDS) as tcp_socket:
        try:
            tls_socket = context.wrap_socket(tcp_socket)
        except ssl.SSLCertVerificationError as error:
            raise ValueError(f"the certificate of {address} is of no use: {error.verify_message}") from error
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
        raise ValueError(f"{address} is another machine, and plain text is only spoken on loopback")


def _credentials(trust: Trust, credential: str | None) -> grpc.ChannelCredentials:
    roots = trust.roots.encode() if trust.roots else _system_roots()
    key, chain = _client_pair(trust.client) if trust.client else (None, None)
    channel = grpc.ssl_channel_credentials(root_certificates=roots, private_key=key, certificate_chain=chain)
    if credential is None:
        return channel
    return grpc.composite_channel_credentials(channel, grpc.access_token_call_credentials(credential))


def _client_pair(client: ClientCertificate) -> tuple[bytes, bytes]:
    try:
        return client.key.read_bytes(), client.certificate.read_bytes()
    except OSError as error:
        raise ValueError(f"the client certificate cannot be read: {error.filename}: {error.strerror}") from error


@functools.cache
def _system_roots() -> bytes | None:
    """The authorities of this system; `None`, gRPC's own list, where they are not in one file."""
    found = ssl.get_default_verify_paths().cafile
    for path in (found, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"):
        if path and Path(path).is_file():
            return Path(path).read_bytes()
    return None


def _options(trust: Trust) -> list[tuple[str, int | str]]:
    override = [("grpc.ssl_target_name_override", trust.server_name)] if trust.server_name else []
    return [*CLIENT_OPTIONS, *override]
