"""Draw migrations/isochrone_migrations/schema.sql from a migrated database, or fail when what is committed differs.

usage: schema_picture.py [--write]

The picture is the output of pg_dump without noise: no comments of pg_dump, no session settings, no
extensions, no owners, no names of NOT NULL constraints, none of the partitions that collectors make as days go by.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.embedded import EmbeddedPostgres, binaries

PICTURE = Path(__file__).resolve().parents[2] / "migrations" / "isochrone_migrations" / "schema.sql"

_HEADER = (
    "-- The schema at the newest revision, drawn by tests/tools/schema_picture.py --write. Never edit by hand.\n\n"
)
_LEFT_OUT = ("--exclude-table=alembic_version", "--exclude-table=sample_2*")
_NOISE = re.compile(
    r"^(--.*|SET .*;|SELECT pg_catalog\..*;|\\(un)?restrict .*|CREATE EXTENSION .*|COMMENT ON EXTENSION .*)$",
    re.MULTILINE,
)
# PostgreSQL 15.20 and its siblings note the version of a column in its options, which an earlier `pg_dump` prints.
_COLUMN_VERSION = re.compile(r"^ALTER TABLE ONLY \S+ ALTER COLUMN \S+ SET \(pg_attver='?\d+'?\);$", re.MULTILINE)
_NOT_NULL_NAME = re.compile(r"CONSTRAINT \w+ (?=NOT NULL)")
_BLANK_LINES = re.compile(r"\n{3,}")


def picture(database_url: str) -> str:
    dump = [str(binaries() / "pg_dump"), "--schema-only", "--no-owner", "--no-privileges", *_LEFT_OUT, database_url]
    text = subprocess.run(dump, check=True, capture_output=True, text=True).stdout  # our own command line
    for noise in (_NOISE, _COLUMN_VERSION, _NOT_NULL_NAME):
        text = noise.sub("", text)
    plain = text.replace("public.", "")
    return _HEADER + _BLANK_LINES.sub("\n\n", plain).strip() + "\n"


def migrated_picture() -> str:
    """The picture of an empty database after all migrations."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder)) as postgres:
        schema.migrate(postgres.conninfo)
        return picture(postgres.conninfo)


def main() -> int:
    """Return 0 when the committed picture is true."""
    drawn = migrated_picture()
    if "--write" in sys.argv[1:]:
        PICTURE.write_text(drawn)
        return 0
    if not PICTURE.exists() or PICTURE.read_text() != drawn:
        sys.stderr.write("schema.sql differs from what the migrations give; run `make schema` and commit the result\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
