"""A callback for LiteLLM, see docs/gateways.md: `plugin` for a proxy, by `callback_settings.isochrone` of its
configuration, and `RegionalRouting` for a `Router`.

Importing this package does not import LiteLLM; using one of these names does.
"""

import ssl
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isochrone.litellm.regional_routing import RegionalRouting

__all__ = ["RegionalRouting", "plugin"]

SECTION = "isochrone"
_TEXT = "a text"
_KINDS: Mapping[str, tuple[str, type]] = {
    "url": (_TEXT, str),
    "default_region": (_TEXT, str),
    "regions": ("a list of texts", list),
    "region_header": (_TEXT, str),
    "token": (_TEXT, str),
    "deployments": ("a target by the id of each deployment", dict),
    "cache_folder": (_TEXT, str),
    "ca_file": (_TEXT, str),
    "proxy": (_TEXT, str),
}


class SettingsError(ValueError):
    """A setting that the operator of the proxy has to correct."""


@cache
def configured_plugin() -> "RegionalRouting":
    """The only callback of this process. Raises `SettingsError`."""
    import litellm  # noqa: PLC0415  # takes seconds

    from isochrone.litellm.regional_routing import RegionalRouting  # noqa: PLC0415  # imports LiteLLM

    return RegionalRouting(**arguments(litellm.callback_settings.get(SECTION)))


def arguments(settings: object) -> dict[str, Any]:
    """The arguments of `RegionalRouting`. Raises `SettingsError`, with a hint."""
    if not isinstance(settings, Mapping):
        raise SettingsError(f"callback_settings.{SECTION} is missing: it has the `url` of the collector and a region")
    for name, value in settings.items():
        where = f"callback_settings.{SECTION}"
        if name not in _KINDS:
            raise SettingsError(f"{where}: `{name}` is not a setting: use {', '.join(_KINDS)}")
        if value is None:
            raise SettingsError(f"{where}.{name} has no value: is its environment variable set?")
        described, kind = _KINDS[name]
        if not isinstance(value, kind) or not _has_texts(value):
            raise SettingsError(f"{where}.{name} is {value!r}: it has to be {described}")
    if "url" not in settings:
        raise SettingsError(f"callback_settings.{SECTION} has no `url`: set the HTTP address of the collector")
    given = dict(settings)
    if "ca_file" in given:
        given["ssl_context"] = ssl.create_default_context(cafile=given.pop("ca_file"))
    return given


def _has_texts(value: object) -> bool:
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return all(isinstance(part, str) and part for part in parts)


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a class, or its instance
    if name == "RegionalRouting":
        from isochrone.litellm.regional_routing import RegionalRouting  # noqa: PLC0415  # as the docstring says

        return RegionalRouting
    if name == "plugin":
        return configured_plugin()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
