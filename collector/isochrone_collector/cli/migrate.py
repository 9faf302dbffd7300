"""`isochrone-collector migrate`: migrate a database, and distribute it over a Citus cluster."""

import click

from isochrone_collector.store.postgres import citus as cluster
from isochrone_collector.store.postgres import schema
from isochrone_collector.store.postgres.pool import describe
from isochrone_wire.cli.command_line import example

_EXAMPLES = (
    "isochrone-collector migrate --database-url postgresql://isochrone@db/isochrone",
    "isochrone-collector migrate --citus --database-url postgresql://isochrone@coordinator/isochrone",
)


@click.command(epilog=example(*_EXAMPLES))
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", required=True, help="PostgreSQL to migrate.")
@click.option("--citus", is_flag=True, help="Then distribute the tables over the nodes of its Citus cluster.")
def migrate(database_url: str, citus: bool) -> None:
    """Bring a database to the newest revision.

    `serve` does the same when it starts. With --citus the tables are then distributed, once; that needs the Citus
    extension in the database, and no collector may be running.
    """
    if citus:
        cluster.check(database_url)
    before, after = schema.migrate(database_url)
    done = "already at" if before == after else f"migrated from {before or 'nothing'} to"
    click.echo(f"{describe(database_url)}: {done} revision {after}")
    if citus:
        spread = cluster.distribute(database_url)
        click.echo(f"distributed {', '.join(spread)}" if spread else "every table is distributed already")
