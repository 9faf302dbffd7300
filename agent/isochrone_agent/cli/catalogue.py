"""`isochrone-agent catalogue`: lists the providers that can be probed by name; and how `probe` finds its target."""

import json
from dataclasses import asdict, dataclass
from difflib import get_close_matches

import click

from isochrone_agent.errors import SettingsError
from isochrone_agent.probe.dialects.providers import CATALOGUE, Provider
from isochrone_common.cli.command_line import example, table_or_json
from isochrone_wire.text import aligned
from isochrone_wire.workloads import supported_efforts

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


_DEFAULT_DIALECT = "openai-chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """The API and the model to probe. `provider` is empty outside the catalogue; `key_env` is `None` without a key."""

    provider: str
    model: str
    base_url: str
    dialect: str
    key_env: str | None


def resolve_target_options(
    what: str | None, *, base_url: str | None, model: str | None, dialect: str | None, key_env: str | None
) -> TargetOptions:
    """Combine the entry of `what` (`provider/model`) with the options that override it. Raises `SettingsError`."""
    if not what:
        options = TargetOptions(
            provider="",
            model=model or "",
            base_url=base_url or "",
            dialect=dialect or _DEFAULT_DIALECT,
            key_env=key_env,
        )
    elif model:
        hint = "use PROVIDER/MODEL (with --base-url for another address), or --model with --base-url"
        raise SettingsError(f"two models are named: {what} and {model}", hint=hint)
    else:
        provider, catalogue_model = _parse_catalogue_name(what)
        options = TargetOptions(
            provider=provider.slug,
            model=catalogue_model,
            base_url=base_url or provider.base_url,
            dialect=dialect or provider.dialect,
            key_env=key_env or provider.key_env,
        )
    _validate(options)
    return options


def check_effort(options: TargetOptions, effort: str | None) -> None:
    """Raise `SettingsError` for a reasoning effort that the API has no way to request from this model."""
    known = supported_efforts(options.dialect, options.model)
    if effort is not None and known is not None and effort not in known:
        raise SettingsError(
            f"{options.model} does not support the effort {effort!r}", hint=f"use one of {', '.join(known)}"
        )


def _validate(options: TargetOptions) -> None:
    if not (options.model and options.base_url):
        hint = "PROVIDER/MODEL (see `isochrone-agent catalogue`), or --base-url and --model"
        raise SettingsError("no target is given", hint=hint)
    if not options.base_url.startswith(("http://", "https://")):
        raise SettingsError(f"{options.base_url!r} does not begin with http:// or https://", hint="see --base-url")
    if "{" in options.base_url:
        hint = "set the complete URL with --base-url"
        raise SettingsError(f"{options.base_url} has a placeholder in braces", hint=hint)


def _parse_catalogue_name(what: str) -> tuple[Provider, str]:
    slug, slash, model = what.partition("/")
    if not slash:
        raise SettingsError(f"{what!r} is not PROVIDER/MODEL", hint="for example groq/llama-3.3-70b-versatile")
    if slug not in CATALOGUE:
        close = get_close_matches(slug, CATALOGUE, n=1)
        nearest = f", did you mean {close[0]!r}?" if close else ""
        raise SettingsError(f"unknown provider {slug!r}{nearest}", hint="`isochrone-agent catalogue` lists them")
    return CATALOGUE[slug], model
