"""Route tables, with the inputs of their decisions."""

from isochrone_migrations.statements import execute

revision = "0004"
down_revision: str | None = "0003"
branch_labels: str | None = None
depends_on: str | None = None

_UP = """
CREATE TABLE route_table (
    generation bigint PRIMARY KEY,
    client_region text NOT NULL,
    route text NOT NULL,
    built_at timestamptz NOT NULL,
    change text NOT NULL,
    sentence text NOT NULL,
    document text NOT NULL,
    inputs bytea NOT NULL,
    before bytea NOT NULL,
    after bytea NOT NULL
);
CREATE INDEX route_table_of_route ON route_table (client_region, route, generation);
COMMENT ON TABLE route_table IS
    'Every table that was published, the inputs and the state it was decided from, and the state it left.';
"""

_DOWN = """
DROP TABLE route_table;
"""


def upgrade() -> None:
    """Create the table."""
    execute(_UP)


def downgrade() -> None:
    """Drop it."""
    execute(_DOWN)
