from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from isochrone_agent.cli import options
from isochrone_agent.settings import default_data_dir
from isochrone_agent.spool.inspection import inspect_spool, quarantined_samples, verify_spool
from isochrone_agent.spool.spool import Spool
from isochrone_common.cli.command_line import example, print_json, table_or_json
from isochrone_wire.json_format import rfc3339, to_json_value
from isochrone_wire.text import printable

SCHEMA = "isochrone.spool/1"
_EXAMPLES = (
    "isochrone-agent spool inspect --vantage sg-1",
    "isochrone-agent spool verify --data-dir /var/lib/isochrone/agent --output json",
    "isochrone-agent spool quarantine export --vantage sg-1 > quarantine.jsonl",
)


@click.group("spool", epilog=example(*_EXAMPLES))
def command() -> None:
    """Inspect the spool of an agent; `inspect` and `verify` also work while it runs."""


def _of_spool(function: Callable[..., Any]) -> Callable[..., Any]:
    vantage = click.option("--vantage", envvar="ISOCHRONE_VANTAGE", metavar="NAME", help="As in `run --vantage`.")
    return options.data_dir(vantage(function))


@command.command("inspect", epilog=example("isochrone-agent spool inspect --vantage sg-1"))
@_of_spool
@table_or_json
def inspect_command(*, data_dir: str | None, vantage: str | None, output: str) -> None:
    """Show the waiting samples, and the fate of all others.

    The output has depth, epochs, sealed batches, drops by reason, quarantine, and whether the account holds.
    """
    found = inspect_spool(_path(data_dir, vantage))
    if output == "json":
        print_json({"schema": SCHEMA, **to_json_value(found)})
        return
    stats = found.depth
    oldest = f", the oldest since {rfc3339(stats.oldest_at)}" if stats.oldest_at else ""
    lines = [
        ("spool", f"{found.path}, {found.bytes / 1e6:.1f} MB"),
        ("waiting", f"{stats.waiting} samples, {found.unsealed} of them unsealed{oldest}"),
        ("epoch", f"{found.epoch}, next batch {found.next_seq}"),
        *[
            ("sealed", f"{s.samples} samples in {s.batches} batches ({s.first_seq} to {s.last_seq}) of epoch {s.epoch}")
            for s in found.sealed
        ],
        ("finished", f"{stats.finished}, of which the collector has {stats.stored}"),
        *[("dropped", f"{samples} {reason}") for reason, samples in stats.dropped.items()],
        *[("quarantine", f"{one.id} {rfc3339(one.recorded_at)} {one.reason}") for one in found.quarantine],
        *[("damaged", path) for path in found.damaged_files],
        ("account", "holds" if found.holds else f"does not hold: {stats.account.missing} samples are missing"),
    ]
    for name, text in lines:
        click.echo(f"{name:12}  {printable(text)}")


@command.command("verify", epilog=example("isochrone-agent spool verify --vantage sg-1"))
@_of_spool
@table_or_json
def verify_command(*, data_dir: str | None, vantage: str | None, output: str) -> None:
    """Verify the whole spool; the exit code is 1 if anything is wrong.

    Runs SQLite's own check, and verifies checksums, samples and the account.
    """
    path = _path(data_dir, vantage)
    problems = verify_spool(path)
    if output == "json":
        document = {"schema": SCHEMA, "path": str(path), "ok": not problems, "problems": problems}
        print_json(document)
    elif problems:
        click.echo("\n".join(map(printable, problems)))
    else:
        click.echo(f"{path}: everything is readable, and the account holds")
    if problems:
        raise SystemExit(1)


@command.group("quarantine")
def quarantine_group() -> None:
    """Manage samples that the collector rejected."""


@quarantine_group.command(
    "export", epilog=example("isochrone-agent spool quarantine export --vantage sg-1 > kept.jsonl")
)
@_of_spool
def export_command(*, data_dir: str | None, vantage: str | None) -> None:
    """Write every sample in quarantine as a line of JSON, with the reason."""
    for one, sample in quarantined_samples(_path(data_dir, vantage)):
        print_json(to_json_value(one) | {"sample": to_json_value(sample)}, indent=None)


@quarantine_group.command("retry", epilog=example("isochrone-agent spool quarantine retry --vantage sg-1"))
@_of_spool
def retry_command(*, data_dir: str | None, vantage: str | None) -> None:
    """Move all samples in quarantine back to the queue.

    Stop the agent first; the samples are delivered when it runs again.
    """
    path = _path(data_dir, vantage)
    inspect_spool(path)
    with closing(Spool(path)) as spool:
        click.echo(f"{spool.retry_quarantine()} samples will be delivered again")


def _path(data_dir: str | None, vantage: str | None) -> Path:
    return Path(data_dir or default_data_dir(vantage)) / "spool.sqlite3"
