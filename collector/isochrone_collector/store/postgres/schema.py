"""The schema's revision: which one a database has, which one is the newest, and migrations between them.

The revisions are modules of the package `isochrone_migrations.versions`, named after their numbers. Alembic applies
them. It is imported only if a revision has to be applied, because it takes a third of a collector's start.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import NamedTuple

import psycopg

from isochrone_collector.errors import SchemaError
from isochrone_collector.store.postgres import citus
from isochrone_collector.store.postgres.connection import condition_of, unavailable
from isochrone_collector.store.postgres.pool import connect, query

_VERSIONS = "isochrone_migrations.versions"


class Migration(NamedTuple):
    """A migration: the revisions before and after it, and the tables that it distributed over a Citus cluster."""

    before: str | None
    after: str | None
    distributed: Sequence[str] = ()


def migrate(conninfo: str, *, revision: str = "head", distribute: bool = False) -> Migration:
    """Upgrade to `revision`. Raises `DatabaseUnreachable`, `DatabaseUnavailable` and `SchemaError`.

    Then distribute the tables over the Citus cluster, if that is wanted, or if others of them are distributed already.
    Several processes may run this at once: all but one wait, and then have nothing to do.
    """
    before, newest = revisions(conninfo)
    if revision == "head" and before == newest and not (distribute or citus.is_incomplete(conninfo)):
        return Migration(before, before)
    from isochrone_collector.store.postgres import migration_runner  # noqa: PLC0415  # alembic, as stated above

    return Migration(*migration_runner.upgrade(conninfo, revision=revision, distribute=distribute))


def downgrade(conninfo: str, *, revision: str) -> None:
    """Downgrade to `revision`; `base` is the empty database. Raises `DatabaseUnreachable` and `SchemaError`."""
    from isochrone_collector.store.postgres import migration_runner  # noqa: PLC0415  # alembic, as stated above

    migration_runner.downgrade(conninfo, revision=revision)


def revisions(conninfo: str) -> tuple[str | None, str]:
    """Return the database's revision and the newest known one. Raises `DatabaseUnreachable` and `SchemaError`."""
    newest = known_revisions()[-1]
    with connect(conninfo) as connection:
        try:
            [has_revision] = connection.execute(query("has_revision")).fetchone() or [False]
            row = connection.execute(query("revision")).fetchone() if has_revision else None
        except psycopg.Error as error:
            if condition := condition_of(error):
                raise unavailable(error, condition) from error
            raise SchemaError(f"cannot read the revision of the database: {error}") from error
    return (str(row[0]) if row else None), newest


def known_revisions() -> list[str]:
    """Return all revisions, oldest first. Raises `SchemaError`."""
    try:
        spec = find_spec(_VERSIONS)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise SchemaError(
            "the package isochrone_migrations is not installed", hint="pip install 'isochrone[collector]'"
        )
    # Revision 0001 is the module `v0001_foundations`.
    return sorted(module.name[1:].partition("_")[0] for module in iter_modules(spec.submodule_search_locations))
