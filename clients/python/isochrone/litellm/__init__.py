"""A callback for LiteLLM, see docs/gateways.md: `plugin` for a proxy, `RegionalRouting` for a `Router`.

Importing this package does not import LiteLLM; using one of these names does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isochrone.litellm.regional_routing import RegionalRouting

__all__ = ["RegionalRouting", "plugin"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a class, or its instance
    if name == "RegionalRouting":
        from isochrone.litellm.regional_routing import RegionalRouting  # noqa: PLC0415  # as the docstring says

        return RegionalRouting
    if name == "plugin":
        from isochrone.litellm.proxy_settings import configured_plugin  # noqa: PLC0415  # as above

        return configured_plugin()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
