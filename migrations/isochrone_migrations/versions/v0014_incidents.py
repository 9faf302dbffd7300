"""Incidents of targets."""

from isochrone_migrations.statements import execute

revision = "0014"
down_revision: str | None = "0013"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
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
"""

_DOWN = "DROP TABLE incident;"


def upgrade() -> None:
    """Create the table; at most one incident of each kind and target is open."""
    execute(_UP)


def downgrade() -> None:
    """Drop the table."""
    execute(_DOWN)
