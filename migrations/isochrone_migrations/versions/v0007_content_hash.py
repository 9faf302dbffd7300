"""A hash of the content of each batch, and the second agent that was refused on the credential of a vantage."""

from isochrone_migrations.statements import execute

revision = "0007"
down_revision: str | None = "0006"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
ALTER TABLE ingest_batch ADD COLUMN content_hash bytea;

COMMENT ON COLUMN ingest_batch.content_hash IS
    'BLAKE2b of the encoded samples, 16 bytes; NULL for batches stored before revision 0007.';

ALTER TABLE vantage
    ADD COLUMN rival_epoch bigint,
    ADD COLUMN rival_first_at timestamptz,
    ADD COLUMN rival_last_at timestamptz;

COMMENT ON COLUMN vantage.rival_epoch IS
    'Epoch of a second agent on this credential that was refused, from the first instant to the last.';
"""

_DOWN = """
ALTER TABLE vantage
    DROP COLUMN rival_epoch,
    DROP COLUMN rival_first_at,
    DROP COLUMN rival_last_at;

ALTER TABLE ingest_batch DROP COLUMN content_hash;
"""


def upgrade() -> None:
    """Add the columns; rows of earlier collectors have no values."""
    execute(_UP)


def downgrade() -> None:
    """Drop the columns."""
    execute(_DOWN)
