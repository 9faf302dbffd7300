import getpass
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from isochrone_collector.cli.operator_client import OperatorClient, confirm, operator_options, yes_option
from isochrone_collector.clock import now_at
from isochrone_collector.errors import CollectorError, SettingsError
from isochrone_collector.plans.diff import GONE_ROUTE, NEW_ROUTE, PER_DAY
from isochrone_common.cli.command_line import Seconds, example, print_json, table_or_json
from isochrone_common.plan_signature import SignatureError, format_key, verify
from isochrone_common.plan_signature import sign as sign_plan
from isochrone_wire.json_format import rfc3339, to_json_value
from isochrone_wire.operations import PlanChange, PlanDocument, PlanHistory, PlanVersion
from isochrone_wire.text import aligned, shortened

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

WIDTH = 100
_MAX_SHOWN = 1_000
# The prefix of a public key, and enough of the rest to distinguish it.
_KEY_CHARS = 24
_SIGN_OF_ROUTES = {NEW_ROUTE: "+", GONE_ROUTE: "-"}

_dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change.")
_force_option = click.option("--force", is_flag=True, help="With --yes, also apply what no vantage can measure as yet.")
_sign_option = click.option(
    "--sign",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="KEYFILE",
    help="Sign the plan with the key of `plan key`. Agents that have pinned it run no other plan.",
)


@click.command(epilog=example("isochrone-collector apply plan.yaml --collector 127.0.0.1:4600 --dry-run"))
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@_dry_run_option
@yes_option
@_force_option
@_sign_option
@click.option(
    "--wait",
    "patience_s",
    type=Seconds(min=0, max=3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a collector that is starting.",
)
@table_or_json
@operator_options
def apply(
    *,
    plan: Path,
    dry_run: bool,
    yes: bool,
    force: bool,
    key_file: Path | None,
    patience_s: float,
    output: str,
    client: OperatorClient,
) -> None:
    """Put a plan file into force.

    The changes and the cost per day are shown first, and with ! what the plan adds that no vantage can measure: a
    baseline without a vantage, a credential that none has, a host that none reaches. Every problem of the file is
    reported with its line, and the exit code is then 2.

    A plan may define routes, for which tables are built; see docs/routing.md.
    """
    with click.open_file(str(plan), encoding="utf-8") as file:
        try:
            document = file.read()
        except UnicodeDecodeError as error:
            raise SettingsError(f"the plan is not UTF-8: {error}") from error
    call = replace(client, patience_s=patience_s).call
    work = partial(call, "ApplyPlan", PlanChange, document=document, signature=_signature(document, key_file))
    _change_plan(work, dry_run=dry_run, yes=yes, force=force, output=output)


@click.group(epilog=example("isochrone-collector plan history"))
def plan() -> None:
    """Show the plans that were applied, or go back to one."""


@plan.command(epilog=example("isochrone-collector plan history --limit 5"))
@click.option("--limit", type=click.IntRange(1, _MAX_SHOWN), default=20, show_default=True, help="Most plans to list.")
@table_or_json
@operator_options
def history(*, limit: int, output: str, client: OperatorClient) -> None:
    """List the plans that were applied, newest first.

    The newest is the one in force.
    """
    found = client.call("ListPlans", PlanHistory, limit=limit)
    if not found.plans and output == "table":
        click.echo("no plan has been applied yet: isochrone-collector apply plan.yaml", err=True)
        return
    print_json(to_json_value(found)) if output == "json" else click.echo(history_as_text(found))


@plan.command(epilog=example("isochrone-collector plan show 3 > plan.yaml"))
@click.argument("version", type=click.IntRange(1), required=False)
@table_or_json
@operator_options
def show(*, version: int | None, output: str, client: OperatorClient) -> None:
    """Print a plan as it was written.

    The default is the plan in force. The text is unchanged, so that it can be edited and applied again.
    `plan rollback VERSION --dry-run` shows what going back to it would change and cost.
    """
    found = client.call("GetPlan", PlanDocument, version=version)
    print_json(to_json_value(found)) if output == "json" else click.echo(found.document, nl=False)


@plan.command(epilog=example("isochrone-collector plan rollback 3 --dry-run"))
@click.argument("version", type=click.IntRange(1))
@_dry_run_option
@yes_option
@_force_option
@_sign_option
@table_or_json
@operator_options
def rollback(
    *, version: int, dry_run: bool, yes: bool, force: bool, key_file: Path | None, output: str, client: OperatorClient
) -> None:
    """Put an earlier plan into force again, as a new version.

    The changes are shown first. Agents that have pinned a key refuse the earlier signature: --sign verifies it, and
    signs the plan again.
    """
    signature = b""
    if key_file:
        signature = _renewed_signature(client.call("GetPlan", PlanDocument, version=version), key_file)
    work = partial(client.call, "RollBackPlan", PlanChange, to_version=version, signature=signature)
    _change_plan(work, dry_run=dry_run, yes=yes, force=force, output=output)


@plan.command(epilog=example("isochrone-collector plan key plan-key.pem"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def key(*, file: Path) -> None:
    """Make a key for signing plans, and print its public key.

    FILE has the private key, which the collector never needs: keep it elsewhere. For an existing FILE, the command only
    prints the public key. Agents pin it by `isochrone-agent join --plan-key`, or by plan_key in their policy.
    """
    public, is_new = _make_key(file)
    click.echo(f"private key: {file}{'' if is_new else ' (existing)'}", err=True)
    click.echo(public)


def _change_plan(work: Callable[..., PlanChange], *, dry_run: bool, yes: bool, force: bool, output: str) -> None:
    """Show what `work` changes, ask for confirmation unless `yes`, and do it. Exit with 2 for an invalid document.

    Raises `CollectorError` with `yes` alone if there are warnings.
    """
    # The plan history records the author of a change.
    work = partial(work, applied_by=f"{getpass.getuser()}@{socket.gethostname()}")
    change = work(dry_run=True)
    if change.problems:
        click.echo("\n".join(change.problems), err=True)
        if output == "json":
            print_json(to_json_value(change))
        sys.exit(2)
    if not dry_run and change.changed:
        if not yes:
            click.echo(as_text(change), err=True)
        elif change.warnings and not force:
            sentence = "\n".join(("the plan does not fit the fleet, and was not applied", *change.warnings))
            raise CollectorError(sentence, hint="correct it, or apply it all the same with --force")
        confirm("Apply?", yes=yes)
        change = work(dry_run=False)
    print_json(to_json_value(change)) if output == "json" else click.echo(as_text(change))


def as_text(change: PlanChange) -> str:
    """Return the change as lines for a person, none wider than `WIDTH` unless one word is."""
    fold = partial(wrap, width=WIDTH, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)
    return "\n".join(part for line in _lines(change) for part in fold(line))


def _lines(change: PlanChange) -> Iterator[str]:
    if not change.changed:
        yield f"unchanged: plan {change.version} already says this"
    else:
        yield f"plan {change.version}"
    yield from (f"  ! {sentence}" for sentence in change.warnings)
    yield from (f"  + {name}" for name in change.added)
    yield from (f"  - {name}" for name in change.removed)
    yield from (f"  {_signed(line)}" for line in change.altered if not line.startswith(PER_DAY))
    spend = "spend unknown: no target has a price"
    if change.usd_per_day is not None:
        spend = f"at most {change.usd_per_day:.2f} USD where prices are known"
    yield f"per vantage and day: {change.requests_per_day} requests, {spend}"
    yield from (f"  {line}" for line in change.altered if line.startswith(PER_DAY))


def _signed(line: str) -> str:
    for beginning, sign in _SIGN_OF_ROUTES.items():
        if line.startswith(beginning):
            return f"{sign} route {line.removeprefix(beginning)}"
    return f"~ {line}"


def history_as_text(history: PlanHistory) -> str:
    """Return the plans as a table for a person."""
    return aligned([("VERSION", "APPLIED", "TARGETS", "BY"), *(_row(plan) for plan in history.plans)])


def _row(plan: PlanVersion) -> tuple[str, ...]:
    restored = "" if plan.restores is None else f", restoring {plan.restores}"
    signed = "" if plan.signed_by is None else f", signed with {shortened(plan.signed_by, _KEY_CHARS)}"
    return str(plan.version), rfc3339(plan.applied_at), str(plan.targets), plan.applied_by + restored + signed


def _signature(document: str, key_file: Path | None) -> bytes:
    """Return the signature of a document, empty without a key, and for a document with problems, which the collector
    reports. Raises `SettingsError`.
    """
    from isochrone_wire.plan_document.document import load  # noqa: PLC0415  # heavy, and only to sign

    if key_file is None:
        return b""
    key = _read_key(key_file)
    reading = load(document, version=1)
    return sign_plan(reading.plan, key, signed_at=now_at()) if reading.plan else b""


def _renewed_signature(found: PlanDocument, key_file: Path) -> bytes:
    """Return a new signature of a plan that was signed with the same key: what the collector returns is not trusted.

    Raises `SettingsError`.
    """
    from isochrone_wire.plan_document.document import load  # noqa: PLC0415  # as above

    key = _read_key(key_file)
    try:
        signed = verify(found.signature, key.public_key().public_bytes_raw())
    except SignatureError as error:
        hint = "apply your own copy of its file: isochrone-collector apply --sign KEYFILE plan.yaml"
        raise SettingsError(f"plan {found.version} was not signed with this key: {error}", hint=hint) from error
    reading = load(found.document, version=0)
    if reading.plan != signed.plan:
        hint = "apply your own copy of its file; the collector may have been changed"
        raise SettingsError(f"the document of plan {found.version} is not the one that was signed", hint=hint)
    return sign_plan(signed.plan, key, signed_at=now_at())


def _make_key(path: Path) -> tuple[str, bool]:
    """Make a private file with a key, unless it exists; return the public key, and whether it is new."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # heavy, and only for keys
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  # as above

    if path.exists():
        return format_key(_read_key(path).public_key().public_bytes_raw()), False
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}", hint="name another file") from error
    return format_key(key.public_key().public_bytes_raw()), True


def _read_key(path: Path) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # as above
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  # as above

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}", hint="see --sign") from error
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{path} is not a private key", hint="`plan key FILE` makes one") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SettingsError(f"{path} is not an Ed25519 key", hint="`plan key FILE` makes one")
    return key
