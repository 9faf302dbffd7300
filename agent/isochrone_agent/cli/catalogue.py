"""`isochrone-agent catalogue`: lists the providers that can be probed by name."""

import json
from dataclasses import asdict

import click

from isochrone_agent.probe.dialects.providers import CATALOGUE, Provider
from isochrone_common.cli.command_line import example, table_or_json
from isochrone_wire.text import aligned

SCHEMA = "isochrone.catalogue/1"
_HEADINGS = ("name", "dialect", "key variable", "base URL")


@click.command("catalogue", epilog=example("isochrone-agent catalogue"))
@table_or_json
def command(*, output: str) -> None:
    """List the providers and gateways that can be probed as NAME/MODEL, with the variable that holds their key."""
    if output == "json":
        entries = [asdict(provider) for provider in CATALOGUE.values()]
        click.echo(json.dumps({"schema": SCHEMA, "providers": entries}, indent=2))
        return
    click.echo(aligned([_HEADINGS, *(_row(provider) for provider in CATALOGUE.values())]))
    click.echo(
        "\nProbe one with: isochrone-agent probe NAME/MODEL. Replace {placeholders} in a base URL with --base-url."
    )


def _row(provider: Provider) -> tuple[str, str, str, str]:
    return (provider.slug, provider.dialect, provider.key_env or "none needed", provider.base_url)
