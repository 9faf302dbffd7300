"""gRPC channels to a collector, with TLS as `isochrone_common.trust` requires it."""

import functools
import ssl
from collections.abc import Sequence
from pathlib import Path

import grpc
import grpc.aio

from isochrone_common.address import Address
from isochrone_common.trust import Trust, require_private

MAX_MESSAGE_BYTES = 8 << 20
CLIENT_PING_EVERY_MS = 30_000
SERVER_PING_TOLERANCE_MS = 20_000
MAX_CONNECTION_AGE_MS = 600_000
CONNECTION_GRACE_MS = 60_000

UNKNOWN_TARGETS_KEY = "isochrone-unknown-targets"
"""The key of the trailing metadata with the ids of unknown targets, separated by commas, of a refused push."""
HINT_KEY = "isochrone-hint-bin"
"""The key of the trailing metadata with the hint, in UTF-8, of a call that a collector refused."""

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
    # The front of the collector (`grpc_api.front`) checks what is announced here.
    ("grpc.http2.max_frame_size", 16 << 10),
    ("grpc.absolute_max_metadata_size", 8 << 10),
    # For TCP, TLS and the first settings of HTTP/2; by default two minutes.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # Without a call; agents send a heartbeat more often.
    ("grpc.max_connection_idle_ms", 120_000),
    # With port reuse, two collectors on one port would each silently receive half of the pushes.
    ("grpc.so_reuseport", 0),
]


def hint_of(call: grpc.Call) -> str | None:
    """Return the hint of the collector that refused a call; `None` if none has answered."""
    found = (value for key, value in call.trailing_metadata() or () if key == HINT_KEY)
    return next((value.decode() for value in found if isinstance(value, bytes)), None)


def open_channel(
    address: Address, trust: Trust, credential: str | None = None, *, more: Sequence[tuple[str, int]] = ()
) -> grpc.Channel:
    """Open a blocking channel. Raises `ValueError`, also for a client certificate that cannot be read."""
    require_private(address, trust)
    options = [*_options(address, trust), *more]
    if not trust.tls:
        return grpc.insecure_channel(str(address), options=options)
    return grpc.secure_channel(str(address), _credentials(trust, credential), options=options)


def open_aio_channel(address: Address, trust: Trust, credential: str | None = None) -> grpc.aio.Channel:
    """Open a channel for asyncio. Raises the same errors as `open_channel`."""
    require_private(address, trust)
    options = _options(address, trust)
    if not trust.tls:
        return grpc.aio.insecure_channel(str(address), options=options)
    return grpc.aio.secure_channel(str(address), _credentials(trust, credential), options=options)


def _credentials(trust: Trust, credential: str | None) -> grpc.ChannelCredentials:
    roots = "\n".join(trust.pins or [trust.roots]).encode() if trust.roots else _system_roots()
    try:
        key, chain = (
            (trust.client.key.read_bytes(), trust.client.certificate.read_bytes()) if trust.client else (None, None)
        )
    except OSError as error:
        raise ValueError(f"cannot read the client certificate: {error.filename}: {error.strerror}") from error
    channel = grpc.ssl_channel_credentials(root_certificates=roots, private_key=key, certificate_chain=chain)
    if credential is None:
        return channel
    return grpc.composite_channel_credentials(channel, grpc.access_token_call_credentials(credential))


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
