"""gRPC settings that both ends must agree on, in one place.

A C-core server lets a client ping an idle connection once in 300 s and hangs up on one that does it more often, so the
server's tolerance stands beside the client's habit and a test keeps it the smaller of the two.
"""

MAX_MESSAGE_BYTES = 8 << 20
CLIENT_PING_EVERY_MS = 30_000
SERVER_PING_TOLERANCE_MS = 20_000
MAX_CONNECTION_AGE_MS = 600_000
CONNECTION_GRACE_MS = 60_000

_LIMITS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
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
    ("grpc.http2.min_recv_ping_interval_without_data_ms", SERVER_PING_TOLERANCE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # A connection ends after ten minutes, give or take a tenth that gRPC draws for each, so that a fleet that came at
    # once does not come back at once; calls in flight have longer to end than any call may last. New ones see new
    # certificates, and find collectors that were added.
    ("grpc.max_connection_age_ms", MAX_CONNECTION_AGE_MS),
    ("grpc.max_connection_age_grace_ms", CONNECTION_GRACE_MS),
    # Two collectors on one port would each get half of the pushes, and nobody would notice.
    ("grpc.so_reuseport", 0),
]
