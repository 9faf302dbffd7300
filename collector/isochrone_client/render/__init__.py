"""Pages to text: one module per output format, loaded when it is asked for."""

from importlib import import_module
from typing import Protocol, cast

from isochrone_client.render.page import Page, RenderOptions, Row

OUTPUTS = ("table", "json", "csv", "markdown")


class Renderer(Protocol):
    """What each module of an output format offers. The texts end in a newline, or are empty."""

    def whole(self, page: Page[Row], look: RenderOptions) -> str:
        """The page as one text."""

    def opening(self, page: Page[Row], look: RenderOptions) -> str:
        """The page as the beginning of a text that goes on."""

    def more(self, page: Page[Row], look: RenderOptions) -> str:
        """The rows of a later page with the same columns, to be written after the opening."""


def renderer(output: str) -> Renderer:
    """The renderer of one of `OUTPUTS`."""
    return cast(Renderer, import_module(f"isochrone_client.render.{output}"))
