"""The hourly levels of the past week of each series, from which intervals know how far its level drifts."""

from isochrone_migrations.statements import execute

revision = "0006"
down_revision: str | None = "0005"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
CREATE TABLE hourly_levels (
    target_id bigint NOT NULL,
    region text NOT NULL,
    metric text NOT NULL,
    quantity text NOT NULL,
    until_at timestamptz NOT NULL,
    noise double precision NOT NULL,
    levels bytea NOT NULL,
    PRIMARY KEY (target_id, region, metric, quantity)
);
COMMENT ON TABLE hourly_levels IS
    'Levels of a metric in each hour of the past week: medians, or shares above quantiles of the week. Made daily.';
COMMENT ON COLUMN hourly_levels.levels IS 'Four-byte floats, oldest hour first; NaN for an hour without values.';
COMMENT ON COLUMN hourly_levels.noise IS 'Variance that the noise within an hour gives a level.';
"""

_DOWN = """
DROP TABLE hourly_levels;
"""


def upgrade() -> None:
    """Create the table."""
    execute(_UP)


def downgrade() -> None:
    """Drop the table."""
    execute(_DOWN)
