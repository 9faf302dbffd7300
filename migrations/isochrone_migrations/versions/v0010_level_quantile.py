"""The quantile of the week beside the hourly shares above it: shows whether a limit is near that quantile."""

from isochrone_migrations.statements import execute

revision = "0010"
down_revision: str | None = "0009"
branch_labels: str | None = None
depends_on: str | None = None

# The default is for collectors of the previous version, which write rows without the column.
_UP = """
ALTER TABLE hourly_levels ADD COLUMN quantile double precision NOT NULL DEFAULT 'NaN';

COMMENT ON COLUMN hourly_levels.quantile IS
    'Quantile of the week whose exceedances the levels are, in the unit of the metric; NaN for other quantities.';
"""

_DOWN = """
ALTER TABLE hourly_levels DROP COLUMN quantile;
"""


def upgrade() -> None:
    """Add the column; rows get its value when the levels are made the next time."""
    execute(_UP)


def downgrade() -> None:
    """Drop the column."""
    execute(_DOWN)
