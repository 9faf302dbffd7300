import click

from isochrone_collector.cli.operator_client import confirm, yes_option
from isochrone_collector.errors import SettingsError
from isochrone_collector.store.postgres import citus as cluster
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.pool import describe
from isochrone_common.cli.command_line import example

_EXAMPLES = (
    "isochrone-collector migrate --database-url postgresql://isochrone@db/isochrone",
    "isochrone-collector migrate --to 0001 --database-url postgresql://isochrone@db/isochrone",
    "isochrone-collector migrate --citus --database-url postgresql://isochrone@coordinator/isochrone",
)


@click.command(epilog=example(*_EXAMPLES))
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", required=True, help="PostgreSQL to migrate.")
@click.option("--to", "revision", metavar="REVISION", help="Migrate up or down to this one.  [default: the newest]")
@yes_option
@click.option("--citus", is_flag=True, help="Then distribute the tables over the nodes of its Citus cluster.")
def migrate(database_url: str, revision: str | None, yes: bool, citus: bool) -> None:
    """Bring a database to the newest revision, or to another one.

    `serve` migrates to the newest revision when it starts. A downgrade deletes what the later revisions added; no newer
    collector may be running. With --citus the tables are then distributed, once; that needs the Citus extension in the
    database, and no collector may be running. Later migrations distribute the tables that they add.
    """
    known = schema.known_revisions()
    if revision is not None and revision not in known:
        raise SettingsError(f"there is no revision {revision!r}", hint=f"choose one of {', '.join(known)}")
    if citus:
        cluster.check(database_url)
    is_downgrade = revision is not None and (schema.revisions(database_url)[0] or "") > revision
    if revision is not None and is_downgrade:
        _downgrade(database_url, revision, yes=yes)
    if citus or not is_downgrade:
        _upgrade(database_url, revision or "head", citus=citus)


def _upgrade(database_url: str, revision: str, *, citus: bool) -> None:
    before, after, distributed = schema.migrate(database_url, revision=revision, distribute=citus)
    done = "already at" if before == after else f"migrated from {before or 'nothing'} to"
    click.echo(f"{describe(database_url)}: {done} revision {after}")
    if citus or distributed:
        click.echo(f"distributed {', '.join(distributed)}" if distributed else "every table is distributed already")


def _downgrade(database_url: str, revision: str, *, yes: bool) -> None:
    before, _ = schema.revisions(database_url)
    question = f"{describe(database_url)}: delete what revisions after {revision} up to {before} added?"
    confirm(question, yes=yes)
    schema.downgrade(database_url, revision=revision)
    click.echo(f"{describe(database_url)}: migrated from {before} down to revision {revision}")
