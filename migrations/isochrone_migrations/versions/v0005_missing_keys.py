"""The targets that an agent skips because it lacks their key."""

from isochrone_migrations.statements import execute

revision = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
ALTER TABLE vantage ADD COLUMN missing_keys text;
"""

_DOWN = """
ALTER TABLE vantage DROP COLUMN missing_keys;
"""


def upgrade() -> None:
    """Add the column."""
    execute(_UP)


def downgrade() -> None:
    """Drop the column."""
    execute(_DOWN)
