"""The targets that an agent skips because its own policy refuses them."""

from alembic import op

revision = "0008"
down_revision: str | None = "0007"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
ALTER TABLE vantage ADD COLUMN refused_targets text;
"""

_DOWN = """
ALTER TABLE vantage DROP COLUMN refused_targets;
"""


def upgrade() -> None:
    """Add the column."""
    op.execute(_UP)


def downgrade() -> None:
    """Drop the column."""
    op.execute(_DOWN)
