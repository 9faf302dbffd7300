from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from isochrone_agent.cli import options
from isochrone_agent.clock import now_at
from isochrone_agent.plan.budget import Account
from isochrone_agent.plan.policy import TOTAL, Policy, load_policy
from isochrone_agent.settings import Settings, load_settings
from isochrone_agent.spool.inspection import read_spend
from isochrone_common.cli.command_line import example, print_json, table_or_json
from isochrone_wire.json_format import to_json_value
from isochrone_wire.model import SECOND_US, Spend, day_of
from isochrone_wire.workloads import POLICY_PREFIX

SCHEMA = "isochrone.policy/1"


@click.command("policy", epilog=example("isochrone-agent policy --policy policy.toml"))
@options.running
@table_or_json
def command(*, settings_file: Path | None, output: str, **values: Any) -> None:  # noqa: ANN401  # options of many kinds
    """Show what this agent does at most, whatever a plan contains, and what it has used today (UTC).

    The policy is a file of this agent, which no collector can change: allowed URLs and addresses, the shortest
    interval, and limits per day. Takes the options of `run`; fails if the file is not valid. A running agent reads it
    when it starts.
    """
    settings = load_settings(settings_file, values)
    policy = load_policy(settings)
    spent = {spend.provider: spend for spend in read_spend(settings.spool_path, day_of(now_at()))}
    if output == "json":
        document = {
            "schema": SCHEMA,
            "path": str(policy.path) if policy.path else None,
            "allow": list(map(str, policy.destinations.prefixes)),
            "networks": list(map(str, policy.destinations.networks)),
            "min_every_us": policy.min_every_us,
            "max_streams": policy.max_streams,
            "error_chars": policy.error_chars,
            "tls_files": str(policy.tls_files) if policy.tls_files else None,
            "accounts": [
                {"limits": to_json_value(account.limits), "spent": to_json_value(spent.get(account.limits.provider))}
                for account in _accounts(policy)
            ],
        }
        print_json(document)
        return
    for name, text in _lines(policy, settings, spent):
        click.echo(f"{name:12}  {text}".rstrip())


def _accounts(policy: Policy) -> list[Account]:
    return [*([policy.total] if policy.total else []), *policy.accounts.values()]


def _lines(policy: Policy, settings: Settings, spent: dict[str, Spend]) -> Iterator[tuple[str, str]]:
    yield "policy", str(policy) if policy.path else f"built-in; {settings.data_dir / 'policy.toml'} does not exist"
    for number, prefix in enumerate(policy.destinations.prefixes):
        yield ("" if number else "allowed"), str(prefix)
    if not policy.destinations.prefixes:
        yield "allowed", "every public host"
    networks = ", ".join(map(str, policy.destinations.networks))
    yield "networks", f"besides public addresses {networks}" if networks else "public addresses only"
    yield "interval", f"at least {policy.min_every_us / SECOND_US:g} s" if policy.min_every_us else "as in the plan"
    yield "streams", f"at most {policy.max_streams} at once"
    yield "tls files", f"below {policy.tls_files}" if policy.tls_files else "none: plans may not name any"
    yield "error texts", f"at most {policy.error_chars} characters of a provider's"
    for account in _accounts(policy):
        yield "per day", _usage(account, spent.get(account.limits.provider, Spend(provider="", day_at=0)))
    if not _accounts(policy):
        yield "per day", "no limit besides the plan's budgets"


def _usage(account: Account, spent: Spend) -> str:
    limits = account.limits
    where = "all destinations" if limits.provider == TOTAL else limits.provider.removeprefix(POLICY_PREFIX)
    amounts = (
        ("requests", spent.requests, limits.requests_per_day, "d"),
        ("tokens", spent.tokens, limits.tokens_per_day, "d"),
        ("USD", spent.usd, limits.usd_per_day, ".2f"),
    )
    used = (f"{amount:{form}} of {limit:{form}} {unit}" for unit, amount, limit, form in amounts if limit is not None)
    return f"{where}: {', '.join(used)}"
