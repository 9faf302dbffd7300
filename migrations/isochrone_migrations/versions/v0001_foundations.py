"""Foundations: regions, vantages, plans, targets, the delivery ledger and the samples."""

from isochrone_migrations.statements import execute

revision = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
CREATE TABLE region (
    name text PRIMARY KEY
);
COMMENT ON TABLE region IS 'Every region ever named: where a vantage stands, or the baseline of a plan.';

CREATE TABLE vantage (
    id bigint PRIMARY KEY,
    name text NOT NULL UNIQUE,
    region text NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    agent_version text NOT NULL DEFAULT '',
    plan_version bigint NOT NULL DEFAULT 0,
    spool_depth bigint NOT NULL DEFAULT 0,
    spool_oldest_at timestamptz,
    dropped jsonb NOT NULL DEFAULT '{}',
    next_heartbeat_at timestamptz
);
COMMENT ON TABLE vantage IS 'One agent in one region, with the vitals of its newest push.';

CREATE TABLE plan (
    version bigint PRIMARY KEY,
    document text NOT NULL,
    applied_at timestamptz NOT NULL,
    applied_by text NOT NULL
);
COMMENT ON TABLE plan IS 'Every plan applied, as it was written; the highest version is in force.';

CREATE TABLE target (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    base_url text NOT NULL,
    dialect text NOT NULL,
    workload jsonb NOT NULL,
    every_us bigint NOT NULL,
    overlap text NOT NULL,
    credential text,
    usd_per_m_input double precision,
    usd_per_m_output double precision,
    region text,
    first_version bigint NOT NULL,
    last_version bigint NOT NULL
);
COMMENT ON TABLE target IS 'Every target ever planned, as the newest plan that holds it describes it.';

CREATE TABLE ingest_batch (
    vantage_id bigint NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    samples integer NOT NULL,
    stored integer NOT NULL,
    late integer NOT NULL,
    rejections jsonb,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (vantage_id, epoch, seq)
);
COMMENT ON TABLE ingest_batch IS 'The delivery ledger: a batch with a row here is never stored again.';

CREATE TABLE sample (
    target_id bigint NOT NULL,
    round_at timestamptz NOT NULL,
    vantage_id bigint NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    idx integer NOT NULL,
    region text NOT NULL,
    received_at timestamptz NOT NULL,
    outcome text NOT NULL,
    dispatched_at timestamptz NOT NULL,
    late_us bigint NOT NULL,
    dns_us bigint,
    tcp_us bigint,
    tls_us bigint,
    ttfb_us bigint,
    ttft_us bigint,
    ttfat_us bigint,
    e2e_us bigint,
    tokens_per_second double precision,
    chunk_gap_p50_us bigint,
    chunk_gap_p99_us bigint,
    chunk_gap_max_us bigint,
    stalls integer,
    prompt_tokens integer,
    output_tokens integer,
    reasoning_tokens integer,
    cached_tokens integer,
    first_chunk_tokens integer,
    chunks integer NOT NULL,
    output_chars integer NOT NULL,
    token_source text,
    rtt_us bigint,
    rtt_min_us bigint,
    retransmits integer,
    provider_us bigint,
    remote_address text,
    edge text,
    request_id text,
    ratelimit_limit_requests bigint,
    ratelimit_remaining_requests bigint,
    ratelimit_reset_requests_us bigint,
    ratelimit_limit_tokens bigint,
    ratelimit_remaining_tokens bigint,
    ratelimit_reset_tokens_us bigint,
    ratelimit_retry_after_us bigint,
    loop_lag_us bigint,
    clock_offset_us bigint,
    clock_uncertainty_us bigint,
    cost_usd double precision,
    quality integer NOT NULL,
    http_status integer,
    error text,
    timeout_us bigint,
    PRIMARY KEY (target_id, round_at, vantage_id, epoch, seq, idx)
) PARTITION BY RANGE (round_at);
COMMENT ON TABLE sample IS 'One row per probe, append-only, a partition per day (UTC) made by the collector.';

CREATE TABLE sample_late (
    LIKE sample,
    reason text NOT NULL,
    PRIMARY KEY (target_id, round_at, vantage_id, epoch, seq, idx)
);
COMMENT ON TABLE sample_late IS 'Samples of rounds without a partition, kept apart with the reason.';
"""

_DOWN = """
DROP TABLE sample_late;
DROP TABLE sample;
DROP TABLE ingest_batch;
DROP TABLE target;
DROP TABLE plan;
DROP TABLE vantage;
DROP TABLE region;
"""


def upgrade() -> None:
    """Create the tables in an empty database."""
    execute(_UP)


def downgrade() -> None:
    """Drop all tables, with the samples."""
    execute(_DOWN)
