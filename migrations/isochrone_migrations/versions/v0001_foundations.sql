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
    next_heartbeat_at timestamptz,
    epoch bigint,
    newest_sample_at timestamptz,
    finished bigint NOT NULL DEFAULT 0,
    stored bigint NOT NULL DEFAULT 0,
    quarantined bigint NOT NULL DEFAULT 0,
    rounds_missed bigint NOT NULL DEFAULT 0,
    clock_offset_us bigint,
    clock_uncertainty_us bigint,
    loop_lag_us bigint,
    refused_plan_version bigint,
    refused_plan_reason text,
    spend jsonb NOT NULL DEFAULT '[]',
    ledgered bigint NOT NULL DEFAULT 0,
    missing_keys text,
    duplicate_epoch bigint,
    duplicate_first_at timestamptz,
    duplicate_last_at timestamptz,
    refused_targets text,
    stopped boolean NOT NULL DEFAULT false,
    stored_rounds_until timestamptz,
    earlier_rounds_until timestamptz
);
COMMENT ON TABLE vantage IS 'One agent in one region, with the heartbeat of its newest push.';
COMMENT ON COLUMN vantage.duplicate_epoch IS
    'Epoch of a second agent on this credential that was refused, from the first instant to the last.';
COMMENT ON COLUMN vantage.earlier_rounds_until IS
    'The newest round stored before the agent that delivers took over; up to here its samples may be stored already.';

CREATE TABLE credential (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    region text,
    secret_hash bytea NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    lifetime_us bigint,
    renewal_key bytea,
    renews bigint
);
COMMENT ON TABLE credential IS 'Who may come in, with the hash of the secret; the secret is nowhere.';
COMMENT ON COLUMN credential.lifetime_us IS
    'From created_at, in microseconds; NULL for a credential without an end. A successor has the same.';
COMMENT ON COLUMN credential.renewal_key IS
    'Random bytes from which, with the secret, the successor is derived; NULL before the first renewal.';
COMMENT ON COLUMN credential.renews IS 'The credential of which this one is the successor.';

CREATE TABLE invitation (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    region text,
    secret_hash bytea NOT NULL,
    overlap_us bigint NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    revoked_at timestamptz,
    lifetime_us bigint
);
COMMENT ON TABLE invitation IS 'Join tokens by their hash: each is good once, and until it expires.';

CREATE TABLE audit (
    id bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    principal text NOT NULL,
    address text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    hash bytea NOT NULL
);
COMMENT ON TABLE audit IS 'Changes by operators and by machines that join. Rows are never changed or removed.';
COMMENT ON COLUMN audit.hash IS 'SHA-256 over the hash of the row before and the other columns.';
COMMENT ON COLUMN audit.principal IS 'Name of the credential, as the collector authenticated it.';
CREATE INDEX audit_at ON audit (at);
-- Only a superuser, or the owner after another GRANT, can change what is recorded.
REVOKE UPDATE, DELETE, TRUNCATE ON audit FROM CURRENT_USER;

CREATE TABLE plan (
    version bigint PRIMARY KEY,
    document text NOT NULL,
    applied_at timestamptz NOT NULL,
    applied_by text NOT NULL,
    restores bigint,
    signature bytea
);
COMMENT ON TABLE plan IS 'Every plan applied, as it was written; the highest version is in force.';
COMMENT ON COLUMN plan.signature IS 'An encoded PlanSignature, by an operator; NULL for a plan that was not signed.';

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
    oldest_round_at timestamptz,
    newest_round_at timestamptz,
    content_hash bytea NOT NULL,
    transaction_id bigint NOT NULL,
    PRIMARY KEY (vantage_id, epoch, seq)
);
COMMENT ON TABLE ingest_batch IS 'The delivery ledger: a batch with a row here is never stored again.';
COMMENT ON COLUMN ingest_batch.transaction_id IS
    'The transaction that stored it: with snapshots of the transactions, readers find the new batches without a clock.';
COMMENT ON COLUMN ingest_batch.content_hash IS 'BLAKE2b of the encoded samples, 16 bytes.';
CREATE INDEX ingest_batch_received_at ON ingest_batch (received_at);
CREATE INDEX ingest_batch_transaction_id ON ingest_batch (transaction_id);

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
    frames_unknown integer DEFAULT 0 NOT NULL,
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
    traits integer NOT NULL,
    answer_from_us bigint,
    PRIMARY KEY (target_id, round_at, vantage_id, epoch, seq, idx)
) PARTITION BY RANGE (round_at);
COMMENT ON TABLE sample IS 'One row per probe, append-only, a partition per day (UTC) made by the collector.';
COMMENT ON COLUMN sample.traits IS
    'Bits: values are valid (1), can be compared (2), has a first token (4); from 8 on, the place of the outcome.';
COMMENT ON COLUMN sample.answer_from_us IS
    'From the request to the chunk at which the measurement of the speed began, in microseconds.';

CREATE TABLE sample_late (
    LIKE sample,
    reason text NOT NULL,
    PRIMARY KEY (target_id, round_at, vantage_id, epoch, seq, idx)
);
COMMENT ON TABLE sample_late IS 'Samples of rounds without a partition, kept apart with the reason.';
CREATE INDEX sample_late_received_at ON sample_late (received_at);

CREATE TABLE summary (
    target_id bigint NOT NULL,
    region text NOT NULL,
    metric text NOT NULL,
    resolution text NOT NULL,
    bucket_start timestamptz NOT NULL,
    values_count integer NOT NULL,
    histogram bytea NOT NULL,
    censored bytea,
    PRIMARY KEY (target_id, region, metric, resolution, bucket_start)
);
COMMENT ON TABLE summary IS
    'Mergeable histograms of a metric per hour or day: merging is adding counts. Kept after the samples are gone.';
CREATE INDEX summary_bucket ON summary (resolution, metric, bucket_start);

CREATE TABLE outcome_summary (
    target_id bigint NOT NULL,
    region text NOT NULL,
    resolution text NOT NULL,
    bucket_start timestamptz NOT NULL,
    outcomes jsonb NOT NULL,
    cost_usd double precision,
    newest_at timestamptz NOT NULL,
    PRIMARY KEY (target_id, region, resolution, bucket_start)
);
COMMENT ON TABLE outcome_summary IS 'How the probes of an hour or day ended, and what they cost.';
CREATE INDEX outcome_summary_bucket ON outcome_summary (resolution, bucket_start);

CREATE TABLE hourly_levels (
    target_id bigint NOT NULL,
    region text NOT NULL,
    metric text NOT NULL,
    quantity text NOT NULL,
    until_at timestamptz NOT NULL,
    noise double precision NOT NULL,
    levels bytea NOT NULL,
    quantile double precision NOT NULL DEFAULT 'NaN',
    PRIMARY KEY (target_id, region, metric, quantity)
);
COMMENT ON TABLE hourly_levels IS
    'Levels of a metric in each hour of the past week: medians, or shares above quantiles of the week. Made daily.';
COMMENT ON COLUMN hourly_levels.levels IS 'Four-byte floats, oldest hour first; NaN for an hour without values.';
COMMENT ON COLUMN hourly_levels.noise IS 'Variance that the noise within an hour gives a level.';
COMMENT ON COLUMN hourly_levels.quantile IS
    'Quantile of the week whose exceedances the levels are, in the unit of the metric; NaN for other quantities.';

CREATE TABLE chore (
    name text PRIMARY KEY,
    done_until timestamptz NOT NULL,
    next_number bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE chore IS 'How far each of the things has come that one collector does for all.';
COMMENT ON COLUMN chore.next_number IS 'The first transaction or generation that is not done; 0 for what goes by time.';

CREATE TABLE drift_event (
    target_id bigint NOT NULL,
    region text NOT NULL,
    metric text NOT NULL,
    changed_at timestamptz NOT NULL,
    detected_at timestamptz NOT NULL,
    before double precision NOT NULL,
    after double precision NOT NULL,
    p_value double precision NOT NULL,
    n_before integer NOT NULL,
    n_after integer NOT NULL,
    may_be_weekly boolean NOT NULL,
    PRIMARY KEY (target_id, region, metric, changed_at)
);
COMMENT ON TABLE drift_event IS 'Lasting changes of a metric of a target as seen from a region.';

CREATE TABLE incident (
    id bigint PRIMARY KEY,
    kind text NOT NULL,
    target_id bigint NOT NULL,
    subject text NOT NULL,
    failing text[] NOT NULL,
    regions text[] NOT NULL,
    scope text NOT NULL,
    never_worked boolean NOT NULL,
    first_failed_at timestamptz NOT NULL,
    last_failed_at timestamptz NOT NULL,
    opened_at timestamptz NOT NULL,
    escalated_at timestamptz,
    recovered_at timestamptz,
    classes jsonb NOT NULL DEFAULT '{}',
    samples jsonb NOT NULL DEFAULT '[]',
    example text NOT NULL DEFAULT ''
);
COMMENT ON TABLE incident IS 'Failures of targets, from the first failed round until they are answered again.';
COMMENT ON COLUMN incident.failing IS 'The regions from which the target fails now; regions are all of them so far.';
COMMENT ON COLUMN incident.classes IS 'Failed probes by outcome and HTTP status.';
COMMENT ON COLUMN incident.samples IS 'The newest failed samples, and example is the error of the newest one.';
CREATE UNIQUE INDEX incident_open ON incident (kind, target_id) WHERE recovered_at IS NULL;

CREATE TABLE alert (
    id bigint PRIMARY KEY,
    kind text NOT NULL,
    subject text NOT NULL,
    sentence text NOT NULL,
    details jsonb NOT NULL,
    raised_at timestamptz NOT NULL
);
COMMENT ON TABLE alert IS 'Alerts, each raised once; alert_delivery has their deliveries.';

CREATE TABLE alert_delivery (
    alert_id bigint NOT NULL,
    receiver text NOT NULL,
    thread text NOT NULL,
    next_attempt_at timestamptz,
    first_attempt_at timestamptz,
    delivered_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    repeats integer NOT NULL DEFAULT 0,
    last_error text NOT NULL DEFAULT '',
    key text NOT NULL DEFAULT '',
    is_open boolean NOT NULL DEFAULT false,
    is_silenced boolean NOT NULL DEFAULT false,
    PRIMARY KEY (alert_id, receiver)
);
COMMENT ON TABLE alert_delivery IS
    'The delivery of each alert to each receiver; without a next attempt it is delivered, given up or silenced.';
COMMENT ON COLUMN alert_delivery.thread IS 'The problem: an incident, or the alert that began it.';
COMMENT ON COLUMN alert_delivery.is_open IS
    'The receiver has this beginning of a problem under the key, and not yet its end.';
CREATE INDEX alert_delivery_pending ON alert_delivery (receiver) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX alert_delivery_open ON alert_delivery (receiver) WHERE is_open;

CREATE TABLE silence (
    id bigint PRIMARY KEY,
    targets text[] NOT NULL,
    providers text[] NOT NULL,
    regions text[] NOT NULL,
    kinds text[] NOT NULL,
    thread text NOT NULL,
    subject text NOT NULL,
    reason text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    until_at timestamptz NOT NULL,
    ended_at timestamptz,
    ended_by text NOT NULL DEFAULT ''
);
COMMENT ON TABLE silence IS 'Silences of alerts by patterns; with a thread, acknowledgements of one problem.';

CREATE TABLE route_table (
    generation bigint PRIMARY KEY,
    client_region text NOT NULL,
    route text NOT NULL,
    built_at timestamptz NOT NULL,
    change text NOT NULL,
    sentence text NOT NULL,
    document text NOT NULL,
    inputs bytea NOT NULL,
    before bytea NOT NULL,
    after bytea NOT NULL
);
COMMENT ON TABLE route_table IS
    'Every table that was published, the inputs and the state it was decided from, and the state it left.';
CREATE INDEX route_table_of_route ON route_table (client_region, route, generation);
