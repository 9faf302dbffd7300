"""Signatures of plans."""

from isochrone_migrations.statements import execute

revision = "0012"
down_revision: str | None = "0011"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
ALTER TABLE plan ADD COLUMN signature bytea;

COMMENT ON COLUMN plan.signature IS 'An encoded PlanSignature, by an operator; NULL for a plan that was not signed.';
"""

_DOWN = "ALTER TABLE plan DROP COLUMN signature;"


def upgrade() -> None:
    """Add the column; existing plans are not signed."""
    execute(_UP)


def downgrade() -> None:
    """Drop the column."""
    execute(_DOWN)
