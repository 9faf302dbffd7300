"""The rounds that were stored before the agent that delivers took over."""

from isochrone_migrations.statements import execute

revision = "0013"
down_revision: str | None = "0012"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
ALTER TABLE vantage
    ADD COLUMN stored_rounds_until timestamptz,
    ADD COLUMN earlier_rounds_until timestamptz;

COMMENT ON COLUMN vantage.earlier_rounds_until IS
    'The newest round stored before the agent that delivers took over; up to here its samples may be stored already.';

-- The clock of an agent that delivered was at most a day ahead.
UPDATE vantage SET stored_rounds_until = now() + interval '1 day' WHERE newest_sample_at IS NOT NULL;
"""

_DOWN = """
ALTER TABLE vantage
    DROP COLUMN stored_rounds_until,
    DROP COLUMN earlier_rounds_until;
"""


def upgrade() -> None:
    """Add the columns; a vantage that has delivered gets a bound of its newest round."""
    execute(_UP)


def downgrade() -> None:
    """Drop the columns."""
    execute(_DOWN)
