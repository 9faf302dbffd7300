"""Fleet: credentials and invitations, more vitals, and plans that restore an earlier one."""

from isochrone_migrations.statements import execute

revision = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
CREATE TABLE credential (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    region text,
    secret_hash bytea NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);
COMMENT ON TABLE credential IS 'Who may come in, with the hash of the secret; the secret is nowhere.';

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
    revoked_at timestamptz
);
COMMENT ON TABLE invitation IS 'Join tokens by their hash: each is good once, and until it expires.';

ALTER TABLE plan ADD COLUMN restores bigint;
ALTER TABLE vantage
    ADD COLUMN epoch bigint,
    ADD COLUMN newest_sample_at timestamptz,
    ADD COLUMN finished bigint NOT NULL DEFAULT 0,
    ADD COLUMN stored bigint NOT NULL DEFAULT 0,
    ADD COLUMN quarantined bigint NOT NULL DEFAULT 0,
    ADD COLUMN rounds_missed bigint NOT NULL DEFAULT 0,
    ADD COLUMN clock_offset_us bigint,
    ADD COLUMN clock_uncertainty_us bigint,
    ADD COLUMN loop_lag_us bigint,
    ADD COLUMN refused_plan_version bigint,
    ADD COLUMN refused_plan_reason text,
    ADD COLUMN spend jsonb NOT NULL DEFAULT '[]';
"""

_DOWN = """
ALTER TABLE vantage
    DROP COLUMN epoch,
    DROP COLUMN newest_sample_at,
    DROP COLUMN finished,
    DROP COLUMN stored,
    DROP COLUMN quarantined,
    DROP COLUMN rounds_missed,
    DROP COLUMN clock_offset_us,
    DROP COLUMN clock_uncertainty_us,
    DROP COLUMN loop_lag_us,
    DROP COLUMN refused_plan_version,
    DROP COLUMN refused_plan_reason,
    DROP COLUMN spend;
ALTER TABLE plan DROP COLUMN restores;
DROP TABLE invitation;
DROP TABLE credential;
"""


def upgrade() -> None:
    """Create the tables and columns."""
    execute(_UP)


def downgrade() -> None:
    """Drop them."""
    execute(_DOWN)
