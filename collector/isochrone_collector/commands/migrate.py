"""`isochrone-collector migrate`: the database's revision."""

import click

from isochrone_collector.store import schema
from isochrone_collector.store.pool import describe


@click.command()
@click.option("--database-url", envvar="ISOCHRONE_DATABASE_URL", required=True, help="PostgreSQL to migrate.")
def migrate(database_url: str) -> None:
    """Bring a database to the newest revision; `serve` does the same when it starts.

    \b
    Example:
      isochrone-collector migrate --database-url postgresql://isochrone@db/isochrone
    """
    before, after = schema.migrate(database_url)
    done = "already at" if before == after else f"migrated from {before or 'nothing'} to"
    click.echo(f"{describe(database_url)}: {done} revision {after}")
