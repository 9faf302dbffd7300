"""Delivery of alerts to several receivers, and silences."""

from isochrone_migrations.statements import execute

revision = "0015"
down_revision: str | None = "0014"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
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
"""

_DOWN = """
DROP TABLE silence;
DROP TABLE alert_delivery;
"""


def upgrade() -> None:
    """Create the tables; the leader moves pending deliveries to the webhook there."""
    execute(_UP)


def downgrade() -> None:
    """Drop the tables."""
    execute(_DOWN)
