"""The first tables, which are in the file of the same name that ends in `.sql`."""

import re
from pathlib import Path

from isochrone_migrations.statements import execute

revision = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

_TABLES = Path(__file__).with_suffix(".sql").read_text()


def upgrade() -> None:
    """Create the tables in an empty database."""
    execute(_TABLES)


def downgrade() -> None:
    """Drop all tables, with the samples."""
    for table in reversed(re.findall("^CREATE TABLE ([a-z_]+)", _TABLES, re.MULTILINE)):
        execute(f"DROP TABLE {table};")
