"""Observatory: summaries that outlive samples, drift events, and alerts."""

from isochrone_migrations.statements import execute

revision = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
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
CREATE INDEX summary_bucket ON summary (resolution, metric, bucket_start);
COMMENT ON TABLE summary IS
    'Mergeable histograms of a metric per hour or day: merging is adding counts. Kept after the samples are gone.';

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
CREATE INDEX outcome_summary_bucket ON outcome_summary (resolution, bucket_start);
COMMENT ON TABLE outcome_summary IS 'How the probes of an hour or day ended, and what they cost.';

CREATE TABLE chore (
    name text PRIMARY KEY,
    done_until timestamptz NOT NULL
);
COMMENT ON TABLE chore IS 'How far each of the things has come that one collector does for all.';

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
    PRIMARY KEY (target_id, region, metric, changed_at)
);
COMMENT ON TABLE drift_event IS 'Lasting changes of a metric of a target as seen from a region.';

CREATE TABLE alert (
    id bigint PRIMARY KEY,
    kind text NOT NULL,
    subject text NOT NULL,
    sentence text NOT NULL,
    details jsonb NOT NULL,
    raised_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    delivered_at timestamptz,
    last_error text NOT NULL DEFAULT ''
);
COMMENT ON TABLE alert IS 'What somebody should know; without a next attempt nobody will be told again.';

ALTER TABLE ingest_batch
    ADD COLUMN oldest_round_at timestamptz,
    ADD COLUMN newest_round_at timestamptz;
CREATE INDEX ingest_batch_received_at ON ingest_batch (received_at);
CREATE INDEX sample_late_received_at ON sample_late (received_at);
ALTER TABLE vantage ADD COLUMN ledgered bigint NOT NULL DEFAULT 0;
UPDATE vantage
SET ledgered = ledger.stored
FROM (SELECT vantage_id, epoch, sum(stored) AS stored FROM ingest_batch GROUP BY vantage_id, epoch) AS ledger
WHERE ledger.vantage_id = vantage.id AND ledger.epoch = vantage.epoch;
"""

_DOWN = """
ALTER TABLE vantage DROP COLUMN ledgered;
DROP INDEX sample_late_received_at;
DROP INDEX ingest_batch_received_at;
ALTER TABLE ingest_batch
    DROP COLUMN oldest_round_at,
    DROP COLUMN newest_round_at;
DROP TABLE alert;
DROP TABLE drift_event;
DROP TABLE chore;
DROP TABLE outcome_summary;
DROP TABLE summary;
"""


def upgrade() -> None:
    """Create the tables and columns."""
    execute(_UP)


def downgrade() -> None:
    """Drop them."""
    execute(_DOWN)
