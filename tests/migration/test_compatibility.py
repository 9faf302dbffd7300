"""Expand and contract: a collector of one version works on the schema of the next, for rolling upgrades."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from fixtures import later_version
from fixtures.postgres import rows
from isochrone_collector.store.postgres import schema
from isochrone_migrations import versions

FILES = sorted(Path(versions.__path__[0]).glob("v*.py"))
REVISIONS = [*schema.known_revisions(), later_version.REVISION]

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND a.attnum > 0 AND NOT a.attisdropped
"""
_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, contype::text
FROM pg_constraint
WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f', 'p', 'u', 'x')
"""


@pytest.mark.usefixtures("later_version")
@pytest.mark.parametrize(("before", "after"), list(pairwise(REVISIONS)))
def test_a_collector_works_on_the_next_schema(empty_database_url: str, before: str, after: str) -> None:
    """A migration adds tables and optional columns, and changes nothing that the version before names."""
    schema.migrate(empty_database_url, revision=before)
    columns, constraints = _facts(empty_database_url)
    schema.migrate(empty_database_url, revision=after)
    new_columns, new_constraints = _facts(empty_database_url)
    tables = {table for table, *_ in columns}
    assert columns - new_columns == set()
    required = {(table, name) for table, name, _, is_required in new_columns - columns if is_required}
    assert {one for one in required if one[0] in tables} == set()
    assert {one for one in new_constraints - constraints if one[0] in tables} == set()


def _facts(url: str) -> tuple[set[tuple[str, str, str, bool]], set[tuple[str, str, str]]]:
    columns = rows(url, _COLUMNS)
    constraints = rows(url, _CONSTRAINTS)
    return {(str(a), str(b), str(c), bool(d)) for a, b, c, d in columns}, {
        (str(a), str(b), str(c)) for a, b, c in constraints
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_indexes_of_existing_tables_are_built_concurrently(path: Path) -> None:
    """An index on a table with rows is built beside pushes, outside of a transaction, by a revision of its own."""
    text = "".join(one.read_text() for one in path.parent.glob(f"{path.stem}.*"))
    created = set(re.findall(r"CREATE TABLE (\w+)", text))
    built = set(re.findall(r"CREATE (?:UNIQUE )?INDEX [\w ]+? ON (?:ONLY )?(\w+)", text))
    assert built <= created
    assert "build_index(" not in text or "execute(" not in text.partition("def downgrade")[0]
