"""The audit trail: what operators and joining machines changed. Rows are added, never changed or removed."""

from alembic import op

revision = "0009"
down_revision: str | None = "0008"
branch_labels: str | None = None
depends_on: str | None = None

_UP = (
    """
CREATE TABLE audit (
    id bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    principal text NOT NULL,
    address text NOT NULL,
    action text NOT NULL,
    target text NOT NULL
)
""",
    "COMMENT ON TABLE audit IS 'Changes by operators and by machines that join. Rows are never changed or removed.'",
    "COMMENT ON COLUMN audit.principal IS 'Name of the credential, as the collector authenticated it.'",
    "CREATE INDEX audit_at ON audit (at)",
    # Only a superuser, or the owner after another GRANT, can change what is recorded.
    "REVOKE UPDATE, DELETE, TRUNCATE ON audit FROM CURRENT_USER",
)

_DOWN = ("DROP TABLE audit",)


def upgrade() -> None:
    """Create the table, to which the collector can only add."""
    for statement in _UP:
        op.execute(statement)


def downgrade() -> None:
    """Drop the table."""
    for statement in _DOWN:
        op.execute(statement)
