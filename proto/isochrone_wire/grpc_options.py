"""gRPC options that clients and the collector must agree on.

By default a gRPC C-core server accepts one ping per 300 s on an idle connection and closes a connection with more.
`SERVER_PING_TOLERANCE_MS` must therefore be less than `CLIENT_PING_EVERY_MS`; a test checks it.
"""

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
