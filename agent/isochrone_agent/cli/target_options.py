"""What `probe` is to measure: a provider of the catalogue by name, or anything by its address."""

from dataclasses import dataclass
from difflib import get_close_matches

from isochrone_agent.errors import SettingsError
from isochrone_agent.probe.providers import CATALOGUE, Provider
from isochrone_wire.reasoning_effort import supported_efforts


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Where to ask for which model, in which shape, with the key in which variable (`None`: without a key)."""

    provider: str
    model: str
    base_url: str
    dialect: str
    key_env: str | None


def resolve_target_options(
    what: str | None, *, base_url: str | None, model: str | None, dialect: str | None, key_env: str | None
) -> TargetOptions:
    """The catalogue's entry for `what` (`provider/model`), each part overruled by what else is said.

    Raises `SettingsError` when that does not come to a model and an address.
    """
    if what and model:
        raise SettingsError(
            f"two models are named: {what} and {model}",
            hint="say PROVIDER/MODEL (with --base-url for another address), or --model with --base-url",
        )
    provider = _provider_of(what) if what else None
    found_model = what.partition("/")[2] if what else model or ""
    found_url = base_url or (provider.base_url if provider else "")
    if not (found_model and found_url):
        raise SettingsError(
            "say what to probe", hint="PROVIDER/MODEL (see `isochrone-agent catalogue`), or --base-url and --model"
        )
    if not found_url.startswith(("http://", "https://")):
        raise SettingsError(f"{found_url!r} does not begin with http:// or https://", hint="see --base-url")
    if "{" in found_url:
        raise SettingsError(f"{found_url} has a part that only you know", hint="say the whole URL with --base-url")
    return TargetOptions(
        provider=provider.slug if provider else "",
        model=found_model,
        base_url=found_url,
        dialect=dialect or (provider.dialect if provider else "openai-chat"),
        key_env=key_env or (provider.key_env if provider else None),
    )


def check_effort(options: TargetOptions, effort: str | None) -> None:
    """Raise `SettingsError` for a reasoning effort that the API has no way to request from this model."""
    known = supported_efforts(options.dialect, options.model)
    if effort is not None and known is not None and effort not in known:
        raise SettingsError(
            f"{options.model} cannot be asked for the effort {effort!r}", hint=f"one of {', '.join(known)}"
        )


def _provider_of(what: str) -> Provider:
    slug, slash, _ = what.partition("/")
    if not slash:
        raise SettingsError(f"{what!r} is not PROVIDER/MODEL", hint="for example groq/llama-3.3-70b-versatile")
    if slug not in CATALOGUE:
        close = get_close_matches(slug, CATALOGUE, n=1)
        nearest = f", did you mean {close[0]!r}?" if close else ""
        raise SettingsError(f"unknown provider {slug!r}{nearest}", hint="`isochrone-agent catalogue` lists them")
    return CATALOGUE[slug]
