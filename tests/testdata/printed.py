"""What commands of `isochrone` print as JSON."""

import json
from typing import Any

from click.testing import CliRunner

from isochrone_client.cli import cli


def printed(address: str, *words: str) -> dict[str, Any]:
    """Return the document that a command prints about the collector at an address."""
    done = CliRunner().invoke(cli, [*words, "--collector", address, "--output", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def printed_rows(address: str, *words: str) -> list[dict[str, Any]]:
    """Return the rows of that document."""
    rows: list[dict[str, Any]] = printed(address, *words)["rows"]
    return rows
