"""Lifetimes of credentials, and their renewal."""

from isochrone_migrations.statements import execute

revision = "0011"
down_revision: str | None = "0010"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
ALTER TABLE invitation ADD COLUMN lifetime_us bigint;

ALTER TABLE credential
    ADD COLUMN lifetime_us bigint,
    ADD COLUMN renewal_key bytea,
    ADD COLUMN renews bigint;

COMMENT ON COLUMN credential.lifetime_us IS
    'From created_at, in microseconds; NULL for a credential without an end. A successor has the same.';

COMMENT ON COLUMN credential.renewal_key IS
    'Random bytes from which, with the secret, the successor is derived; NULL before the first renewal.';

COMMENT ON COLUMN credential.renews IS 'The credential of which this one is the successor.';
"""

_DOWN = """
ALTER TABLE credential
    DROP COLUMN lifetime_us,
    DROP COLUMN renewal_key,
    DROP COLUMN renews;

ALTER TABLE invitation DROP COLUMN lifetime_us;
"""


def upgrade() -> None:
    """Add the columns; existing credentials have no lifetime."""
    execute(_UP)


def downgrade() -> None:
    """Drop the columns; the ends of credentials stay."""
    execute(_DOWN)
